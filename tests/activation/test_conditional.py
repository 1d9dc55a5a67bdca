"""Conditional norms: what the contract and the goldens do not reach."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import normkit as nk
from processes import over_processes

SHARES = (3, 1)
BATCHED = {
    "spade": {"label_channels": 3, "hidden_channels": 4, "norm": "batch"},
    "sawn": {"kernel_size": 3, "hidden_channels": 4, "norm": "batch"},
    "gdwct": {"num_groups": 2, "hidden_channels": 4},
}


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def rand(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def build(name, *args, **kwargs):
    torch.manual_seed(0)
    return nk.create(name, *args, **kwargs).double()


# Two processes equal one


def joined(name, rank=None):
    """Run a module on the whole batch, or on a rank's part of it; return what is to be compared."""
    module = build(name, 6, **BATCHED[name], sync=rank is not None)
    given = nk.card(name).draw(6, sum(SHARES), dtype=torch.float64)
    weight = rand(*given[0].shape, seed=1)
    if rank is not None:
        start = sum(SHARES[:rank])
        given, weight = ([i.narrow(0, start, SHARES[rank]) for i in given], weight.narrow(0, start, SHARES[rank]))
    x = given[0].clone().requires_grad_(True)
    y, *others = returned(module(x, *given[1:]))
    loss = (y * weight).sum() + sum((o * o).sum() for o in others[:1]) / (1 if rank is None else len(SHARES))
    loss.backward()
    gradients = {n: p.grad for n, p in module.named_parameters()}
    return y.detach(), x.grad, gradients, [o.detach() for o in others[:1]], dict(module.named_buffers())


def returned(value):
    return value if isinstance(value, tuple) else (value,)


def work():
    return {name: joined(name, torch.distributed.get_rank()) for name in BATCHED}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return over_processes(work, len(SHARES), tmp_path_factory.mktemp("conditional"))


@pytest.mark.parametrize("name", BATCHED)
def test_two_processes_with_unequal_shares_equal_one(name, shards):
    y, dx, gradients, others, state = joined(name)
    close(torch.cat([s[name][0] for s in shards]), y)
    close(torch.cat([s[name][1] for s in shards]), dx)
    for parameter, gradient in gradients.items():
        close(sum(s[name][2][parameter] for s in shards), gradient)
    for shard in shards:
        close(shard[name][3], others)
        close(shard[name][4], state)


# SPADE and its kin


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_spade_is_the_formula_over_torchs_layers(norm):
    module = build("spade", 4, label_channels=3, hidden_channels=5, norm=norm, momentum=0.3)
    free = (
        torch.nn.BatchNorm2d(4, affine=False, momentum=0.3).double() if norm == "batch" else torch.nn.InstanceNorm2d(4)
    )
    segmap = rand(3, 3, 11, 4, seed=1)
    for step in range(4):
        x = rand(3, 4, 6, 7, seed=step) * 3 + 1
        if step == 3:
            module.eval(), free.eval()
        hidden = module.shared(F.interpolate(segmap, size=(6, 7), mode="nearest")).relu()
        close(module(x, segmap), free(x) * (1 + module.gamma(hidden)) + module.beta(hidden))
    for key, value in free.state_dict().items():
        close(module.state_dict()[key], value)


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_a_constant_label_map_is_seen(norm):
    module = build("spade", 3, label_channels=3, hidden_channels=8, norm=norm)
    constant = [F.one_hot(torch.full((2, 5, 5), k), 3).movedim(-1, 1).double() for k in range(3)]
    convolved = torch.nn.Conv2d(3, 3, 1).double()
    blind = [F.instance_norm(convolved(c)) for c in constant]
    seen = [module(torch.zeros(2, 3, 5, 5).double(), c) for c in constant]
    close(blind[0], blind[1])
    assert all((a - b).abs().max() > 1e-3 for a, b in itertools.combinations(seen, 2))


def test_motion_keeps_its_values_when_it_is_resized():
    module = build("motion-adaptive-norm", 4, hidden_channels=5)
    x = rand(2, 4, 6, 8)
    field = torch.tensor([3.0, -2.0]).double().view(1, 2, 1, 1)
    close(module(x, field.expand(2, 2, 12, 16)), module(x, field.expand(2, 2, 3, 4)))


@pytest.mark.parametrize("name", ["spade", "fade", "motion-adaptive-norm"])
def test_an_even_kernel_is_refused(name):
    with pytest.raises(ValueError, match=r"kernel_size must be odd, not 4"):
        nk.create(name, 4, **{**nk.card(name).example, "kernel_size": 4})


@pytest.mark.parametrize("name", ["spade", "fade", "sawn"])
def test_norm_names_its_choices_and_counts_batches(name):
    example = nk.card(name).example
    with pytest.raises(ValueError, match=r"norm must be one of 'instance', 'batch', not 'layer'"):
        nk.create(name, 4, **{**example, "norm": "layer"})
    plain = build(name, 4, **{**example, "norm": "instance"})
    assert not list(plain.buffers())
    module = build(name, 4, **{**example, "norm": "batch", "momentum": None})
    steps = [nk.card(name).draw(4, 3, dtype=torch.float64, seed=s) for s in range(3)]
    for given in steps:
        module(*given)
    assert module.num_batches_tracked == 3
    close(module.running_mean, torch.stack([g[0].mean((0, 2, 3)) for g in steps]).mean(0))
    single = [g[:1, :, :1, :1] for g in steps[0][:1]]
    before = module.running_mean.clone()
    with pytest.raises(ValueError, match=r"x of shape \(1, 4, 1, 1\)"):
        module(*single, *(torch.zeros(1, *(i.shape[1:2]), 1, 1).double() for i in steps[0][1:]))
    close(module.running_mean, before, rtol=0, atol=0)


# SAWN, position by position


def sampled(source, row, column):
    height, width = source.shape[1:]
    r0, c0 = row.floor(), column.floor()
    value = 0
    for r, wr in ((r0, 1 - (row - r0)), (r0 + 1, row - r0)):
        for c, wc in ((c0, 1 - (column - c0)), (c0 + 1, column - c0)):
            value = value + wr * wc * source[:, int(r.clamp(0, height - 1)), int(c.clamp(0, width - 1))]
    return value


def warped(module, x, source, flow, k):
    """The equations for one sample, as loops: blocks, convolution, softmax, average."""
    out = torch.zeros_like(x)
    for row, column in itertools.product(*map(range, x.shape[1:])):
        offsets = [(i - k // 2, j - k // 2) for i in range(k) for j in range(k)]
        at = [(row + i, column + j) for i, j in offsets]
        dx, dy = flow[:, row, column]
        b_t = torch.stack([sampled(x, torch.tensor(r).double(), torch.tensor(c).double()) for r, c in at], -1)
        b_s = torch.stack([sampled(source, r + dy, c + dx) for r, c in at], -1)
        block = torch.cat([b_t, b_s]).unflatten(-1, (k, k))
        hidden = (F.conv2d(block[None], module.hidden.weight, module.hidden.bias)).flatten().relu()
        out[:, row, column] = ((module.logits(hidden)).softmax(0) * b_s).sum(-1) / k**2
    return out


@pytest.mark.parametrize("k", [2, 3, 5])
def test_sawn_is_its_equations_with_a_style_of_its_own_size(k):
    module = build("sawn", 2, kernel_size=k, hidden_channels=3, norm="batch")
    x, style, mask = rand(2, 2, 4, 3), rand(2, 4, 6, 5, seed=1), rand(2, 1, 4, 3, seed=3)
    flow = 3 * rand(2, 2, 4, 3, seed=2)
    want = []
    normalized = F.batch_norm(x, None, None, training=True)
    for n in range(2):
        shift, gain = (warped(module, x[n], part, flow[n], k) for part in style[n].chunk(2))
        want.append(normalized[n] * (mask[n] * gain + (1 - mask[n]) * x[n]) + shift)
    close(module(x, style, flow, mask), torch.stack(want))


def test_a_flow_fetches_the_style_from_where_it_points():
    module = build("sawn", 3, kernel_size=1, hidden_channels=4)
    style = rand(1, 6, 8, 8)
    flow = torch.tensor([2.0, 1.0]).double().view(1, 2, 1, 1).expand(1, 2, 8, 8)
    y = module(torch.zeros(1, 3, 8, 8).double(), style, flow)
    close(y[..., :7, :6], style[:, :3, 1:, 2:])


# Statistics of a style


def test_adain_gives_the_styles_statistics():
    content, style = rand(2, 3, 9, 8) * 5 + 2, rand(2, 3, 6, 5, seed=1) * 3 - 4
    y = build("adain", 3, eps=0.0)(content, style)
    close(y.mean((2, 3)), style.mean((2, 3)))
    close(y.std((2, 3), correction=0), style.std((2, 3), correction=0))


@pytest.mark.parametrize("unbiased", [False, True])
def test_adain_of_a_constant_style(unbiased):
    content, style = rand(1, 3, 4, 4), torch.full((1, 3, 2, 2), 2.0).double().requires_grad_(True)
    y = build("adain", 3, unbiased=unbiased, eps=0.0)(content, style)
    y.sum().backward()
    close(y, torch.full_like(y, 2.0))
    close(style.grad, torch.full_like(style, 4.0))


def test_adain_refuses_other_channels_of_a_style():
    with pytest.raises(ValueError, match=r"style must have shape \(2, 3, 5, 5\), but its shape is \(2, 4, 5, 5\)"):
        build("adain", 3)(rand(2, 3, 4, 4), rand(2, 4, 5, 5))
    with pytest.raises(ValueError, match="style is on meta, but x is on cpu"):
        build("adain", 3)(rand(2, 3, 4, 4), torch.empty(2, 3, 4, 4, device="meta"))


def test_cross_modal_adain_gives_the_styles_token_statistics_and_keeps_the_ranks():
    content, style = rand(2, 7, 5), rand(2, 9, 5, seed=1) * 3 + 1
    y = build("cross-modal-adain", 5)(content, style)
    close(y.mean(1), style.mean(1), rtol=0, atol=1e-12)
    close(y.std(1), style.std(1), rtol=0, atol=1e-12)
    assert torch.equal(y.argsort(1), content.argsort(1))
    assert build("cross-modal-adain", 5)(torch.ones(1, 3, 5), style[:1]).isnan().all()


def test_fadain_keeps_to_its_masks():
    content, style = rand(2, 3, 6, 6), rand(2, 3, 4, 5, seed=1) * 2 + 3
    inside, style_inside = torch.zeros(2, 1, 6, 6, dtype=torch.bool), torch.zeros(2, 1, 4, 5, dtype=torch.bool)
    inside[..., :3, :], style_inside[..., :2] = True, True
    module = build("fadain", 3, eps=0.0)
    y = module(content, style, inside, style_inside)
    assert torch.equal(y[..., 3:, :], content[..., 3:, :])
    close(y[..., :3, :].mean((2, 3)), style[..., :2].mean((2, 3)))
    close(y[..., :3, :].std((2, 3)), style[..., :2].std((2, 3)))
    close(module(content, style, inside.double(), style_inside.double()), y, rtol=0, atol=0)
    with pytest.raises(TypeError, match="content_mask must be a floating-point or boolean tensor, not torch"):
        module(content, style, inside.long())


def test_fin_is_periodic_and_takes_cos_for_the_gain():
    module = build("fin", 3)
    with torch.no_grad():
        module.weight_phase.fill_(0.5), module.bias_phase.fill_(2.0)
    x, phi = rand(2, 3, 4, 4), torch.tensor([0.3, 1.1]).double()
    close(module(x, phi), module(x, phi + 2 * torch.pi))
    gain, shift = 1 + 0.5 * phi.cos(), 2 * phi.sin()
    close(module(x, phi), gain.view(2, 1, 1, 1) * F.instance_norm(x) + shift.view(2, 1, 1, 1))


def test_adalin_at_the_ends_of_rho():
    module, x, one, zero = (
        build("adalin", 4),
        rand(3, 4, 5, 6) + 3,
        torch.ones(3, 4).double(),
        torch.zeros(3, 4).double(),
    )
    for rho, axes in ((1.0, (2, 3)), (0.0, (1, 2, 3))):
        torch.nn.init.constant_(module.rho, rho)
        mean, var = x.mean(axes, keepdim=True), x.var(axes, keepdim=True)
        close(module(x, one, zero), (x - mean) / (var + 1e-5).sqrt())


# GDWCT


def test_gdwct_regularizer_and_alpha():
    module = build("gdwct", 4, num_groups=2, hidden_channels=3)
    close(module.regularizer(torch.eye(3).expand(2, 3, 3)), torch.tensor(0.0))
    close(module.regularizer(torch.zeros(2, 2)), torch.tensor(0.5))
    with pytest.raises(ValueError, match=r"matrices must have shape \(\.\.\., n, n\)"):
        module.regularizer(torch.zeros(2, 3))
    with torch.no_grad():
        module.alpha.fill_(1.7)
    content, style = rand(2, 4, 3, 3), rand(2, 4, seed=1)
    y = module(content, style)[0]
    module.clip_alpha()
    close(module.alpha.detach(), torch.ones(1).double())
    clipped = module(content, style)[0]
    close(y, 1.7 * clipped - 0.7 * content)
    close(module(content, style[..., None, None])[0], clipped, rtol=0, atol=0)


def test_gdwct_covariance_is_the_contents_and_survives_an_empty_batch():
    module = build("gdwct", 6, num_groups=2, hidden_channels=3)
    content = rand(3, 6, 4, 5) + 7
    y, covariance, eigenvectors = module(content, rand(3, 6, seed=1))
    flat = content.movedim(1, 0).flatten(1)
    for group in range(2):
        close(covariance[group], torch.cov(flat[3 * group : 3 * group + 3]) + 1e-5 * torch.eye(3).double())
    close(eigenvectors.square().sum(-2), torch.ones(6, 3).double())
    y, covariance, eigenvectors = module(content[:0], torch.zeros(0, 6).double())
    assert y.shape == (0, 6, 4, 5)
    assert eigenvectors.shape == (0, 3, 3)
    close(covariance, 1e-5 * torch.eye(3).double().expand(2, 3, 3))


# Layer norms with a condition


def test_motion_layernorm_broadcasts_either_way():
    module = build("motion-layernorm", 4, condition_features=3)
    torch.nn.init.normal_(module.gamma.weight)
    x, condition = rand(2, 5, 4), rand(2, 1, 3, seed=1)
    close(module(x, condition), module(x, condition.expand(2, 5, 3)))
    close(module(x[0, 0], condition), module(x[0, 0].expand(2, 1, 4), condition))
    with pytest.raises(ValueError, match="condition must broadcast"):
        module(x, rand(3, 1, 3))


def test_mixstyle_draws_for_itself():
    x, condition = rand(6, 3, 4), rand(6, 1, 4, seed=1)
    assert torch.equal(build("mixstyle-layernorm", 4, p=0.0)(x, condition), x)
    module = build("mixstyle-layernorm", 4, p=1.0)
    assert module.eval()(x, condition, torch.randperm(6), torch.rand(6).double()) is x
    module.train()
    torch.manual_seed(5)
    y = module(x, condition)
    torch.manual_seed(5)
    torch.rand(())
    permutation = torch.randperm(6)
    mix = torch.distributions.Beta(torch.full((6,), 0.1), torch.full((6,), 0.1)).sample()
    close(y, module(x, condition, permutation, mix))
    active = torch.stack([(build_p(x, condition, seed) != x).any() for seed in range(200)]).double().mean()
    assert abs(active - 0.5) < 0.15  # four deviations of 200 draws at p = 0.5


def build_p(x, condition, seed):
    module = build("mixstyle-layernorm", 4)
    torch.manual_seed(seed)
    return module(x, condition)


def test_mixstyle_without_given_draws_is_one_graph():
    module = nk.create("mixstyle-layernorm", 4)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert compiled(rand(3, 2, 4, dtype=torch.float32), rand(3, 1, 4, dtype=torch.float32)).shape == (3, 2, 4)


def test_mixstyle_of_a_constant_frame_has_a_finite_gradient():
    x = torch.ones(2, 3, 4).double().requires_grad_(True)
    module = build("mixstyle-layernorm", 4)
    module(x, rand(2, 1, 4), torch.tensor([1, 0]), torch.tensor([0.2, 0.7]).double()).square().sum().backward()
    assert x.grad.isfinite().all()


def test_mixstyle_wants_both_draws_or_none():
    module, x, condition = build("mixstyle-layernorm", 4), rand(3, 2, 4), rand(3, 1, 4)
    with pytest.raises(ValueError, match="mix is missing"):
        module(x, condition, torch.arange(3))
    with pytest.raises(ValueError, match=r"permutation must lie in 0 \.\. 2, but goes from 0 to 3"):
        module(x, condition, torch.tensor([0, 3, 1]), torch.rand(3).double())


# LayerNorm tuning


def test_tuning_gives_gradients_to_the_rows_in_use():
    module = build("layernorm-tuning", 4, num_tasks=3)
    module(rand(2, 5, 4), torch.tensor([0, 2])).square().sum().backward()
    for parameter in (module.weight, module.bias):
        assert (parameter.grad.abs().sum(1) > 0).tolist() == [True, False, True]
    module.next_task()
    module.key_similarity(rand(6, 4)).backward()
    assert (module.key.grad.abs().sum(1) > 0).tolist() == [False, True, False]


def test_selection_sees_the_tasks_up_to_the_current_one():
    module = build("layernorm-tuning", 2, num_tasks=3)
    with torch.no_grad():
        module.key.copy_(torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0]]))
    features = torch.tensor([[1.0, 0.0], [1.0, 3.0], [0.0, 0.0]]).double()
    module.next_task()
    tasks, similarity = module.select(features)
    assert tasks.tolist() == [0, 0, 0]
    assert not similarity.requires_grad
    close(similarity, torch.tensor([1.0, 10**-0.5, 0.0]).double())
    module.next_task()
    assert module.select(features)[0].tolist() == [0, 2, 0]


def test_the_next_task_starts_from_the_previous_one():
    module = build("layernorm-tuning", 4, num_tasks=3)
    with torch.no_grad():
        module.weight[0], module.bias[0] = 3.0, -1.0
    key = module.key.detach().clone()
    module.next_task()
    close(module.weight[1].detach(), torch.full((4,), 3.0).double())
    close(module.bias[1].detach(), torch.full((4,), -1.0).double())
    close(module.key.detach(), key, rtol=0, atol=0)
    module.next_task(copy_key=True)
    close(module.key[2].detach(), key[1], rtol=0, atol=0)
    with pytest.raises(ValueError, match="num_tasks=3"):
        module.next_task()
    assert module.current_task == 2


# Types


@pytest.mark.parametrize("name", nk.methods(group="conditional"))
def test_further_inputs_of_another_type_are_named_or_taken(name):
    card = nk.card(name)
    module = build(name, 8, **card.example)
    given = card.draw(8, optional=True, dtype=torch.float64)
    for position, key in enumerate(card.inputs, start=1):
        wrong = list(given)
        wrong[position] = given[position].long() if given[position].is_floating_point() else given[position].double()
        with pytest.raises(TypeError, match=key.rstrip("?")):
            module(*wrong)
        with pytest.raises(ValueError, match=f"{key.rstrip('?')} is on meta"):
            module(*[g.to("meta") if i == position else g for i, g in enumerate(given)])
    floats = [i.float() if i.is_floating_point() else i for i in given[1:]]
    assert all(output.dtype == torch.float64 for output in returned(module(given[0], *floats)))


def test_the_regularizer_of_gdwct_refuses_whole_numbers():
    with pytest.raises(TypeError, match="matrices must"):
        nk.create("gdwct", 8, num_groups=2).regularizer(torch.ones(2, 4, 4, dtype=torch.int64))
