"""What single optimizers and scores do beyond their goldens and the contract."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.gradient import _matrices, _optimizer, agc, grand
from normkit.kinds import OPTIMIZER

RATE = 0.05


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learned(*shape, seed=0):
    p = nn.Parameter(drawn(*shape, seed=seed))
    p.grad = drawn(*shape, seed=seed + 1)
    return p


@pytest.mark.parametrize("name", ["muon", "normuon"])
def test_without_a_gradient_momentum_goes_on(name):
    p, q = learned(4, 6), learned(4, 6)
    one, other = (nk.create(name, [x], ns_dtype=None, weight_decay=0.1, lr=RATE) for x in (p, q))
    one.step(), other.step()
    p.grad, q.grad = None, torch.zeros_like(q)
    before = p.detach().clone()
    one.step(), other.step()
    decayed = RATE * 0.1 * before if name == "normuon" else 0  # normuon leaves out the decay there
    torch.testing.assert_close(p.detach(), q.detach() + decayed)
    assert not torch.equal(p, before)


def test_a_stack_is_its_matrices_and_a_kernel_a_matrix():
    stack, kernel = learned(3, 4, 6), learned(4, 3, 2, 2)
    apart = [nn.Parameter(x.detach().clone()) for x in stack]
    for x, g in zip(apart, stack.grad, strict=True):
        x.grad = g.clone()
    flat = nn.Parameter(kernel.detach().flatten(1).clone())
    flat.grad = kernel.grad.flatten(1).clone()
    for given in ([stack, kernel], [*apart, flat]):
        nk.Muon(given, ns_dtype=None).step()
    torch.testing.assert_close(stack.detach(), torch.stack(apart).detach())
    torch.testing.assert_close(kernel.detach().flatten(1), flat.detach())


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 6, 4)])
def test_a_power_of_singular_values_is_taken_of_each_matrix_of_a_stack_by_its_own_length(shape):
    stack = learned(*shape)
    stack.grad *= torch.tensor([1.0, 10.0, 100.0]).view(3, 1, 1)
    apart = [nn.Parameter(x.detach().clone()) for x in stack]
    for x, g in zip(apart, stack.grad, strict=True):
        x.grad = g.clone()
    for given in ([stack], apart):
        nk.DynMuon(given, p=0.25, ns_dtype=None).step()
    torch.testing.assert_close(stack.detach(), torch.stack(apart).detach())


def test_large_tensors_in_any_layout_get_the_step_of_torch():
    shapes = [(3 * _optimizer._entries() + 7,), (40, 3, 33, 33)]
    mine = [learned(*shape) for shape in shapes]
    mine[1].data = mine[1].data.to(memory_format=torch.channels_last)
    theirs = copy.deepcopy(mine)
    for p, q in zip(mine, theirs, strict=True):
        q.grad = p.grad.clone()
    for optimizer in (
        nk.BlockwiseLR(mine, lr=RATE),
        torch.optim.AdamW(theirs, lr=RATE, betas=(0.9, 0.95), weight_decay=0.1),
    ):
        optimizer.step(), optimizer.step()
    for p, q in zip(mine, theirs, strict=True):
        torch.testing.assert_close(p.detach(), q.detach())


def test_half_precision_decays_and_forgets_by_the_numbers_that_are_asked_for():
    """Torch's product of lists in place rounds 0.998 to 0.996 on CPU."""
    p, q = (nn.Parameter(drawn(64, 64).bfloat16()) for _ in range(2))
    options = {"lr": 0.02, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    optimizers = nk.BlockwiseLR([p], **options), torch.optim.AdamW([q], **options, foreach=False)
    lion = nn.Parameter(torch.full((2, 2), 1.5, dtype=torch.bfloat16))
    lion.grad = torch.zeros_like(lion)
    nk.Lion([lion], lr=0.02, weight_decay=0.1).step()
    assert (lion == 1.5).all()
    for step in range(20):
        p.grad, q.grad = (drawn(64, 64, seed=step).bfloat16() for _ in range(2))
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(p, q)
    assert torch.equal(*(o.state[x]["exp_avg_sq"] for o, x in zip(optimizers, (p, q), strict=True)))


@pytest.mark.parametrize("method", [nk.AdamP, nk.SGDP, nk.StableSPAM, nk.Grams])
def test_blocks_and_steps_in_one_pass_are_the_formula(method, monkeypatch):
    def upright(w, g):
        return g - w * (w * g).sum(1, keepdim=True) / w.square().sum(1, keepdim=True)

    long = 3 * _optimizer._entries() + 7

    def run():
        ps = [learned(300, 400), learned(300, 400, seed=2), learned(long)]
        optimizer = method(ps, lr=RATE, weight_decay=0.1)
        for step in range(3):
            for p in ps:
                p.grad = drawn(*p.shape, seed=step)
                p.grad.view(-1)[5] *= 100**step  # a spike
            ps[0].grad = upright(ps[0].detach(), ps[0].grad)  # which is projected
            optimizer.step()
        return [p.detach() for p in ps]

    got = run()
    monkeypatch.setattr(_optimizer, "BLOCK", 1 << 40)
    monkeypatch.setattr(_optimizer, "_in_one_pass", lambda *lists: False)
    for p, want in zip(got, run(), strict=True):
        torch.testing.assert_close(p, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", [nk.Muon, nk.NorMuon])
def test_large_matrices_alone_and_in_blocks_of_rows_are_those_of_one_stack(method, monkeypatch):
    def run():
        ps = [learned(300, 400), learned(300, 400, seed=2), learned(2, 400, 300), learned(200, 50, 3, 3)]
        optimizer = method(ps, weight_decay=0.1, ns_dtype=None)
        optimizer.step(), optimizer.step()
        return [p.detach() for p in ps]

    got = run()
    monkeypatch.setattr(_optimizer, "BLOCK", 1 << 40)
    monkeypatch.setattr(_matrices, "LARGE", 1 << 40)
    for p, want in zip(got, run(), strict=True):
        torch.testing.assert_close(p, want, rtol=1e-10, atol=1e-12)


def test_the_threads_of_the_machine_share_a_block_of_work(monkeypatch):
    lengths = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    _optimizer.entrywise(lambda xs: lengths.append(xs[0].numel()), [torch.zeros(10 * _optimizer.BLOCK)])
    assert lengths == [3 * _optimizer.BLOCK] * 3 + [_optimizer.BLOCK]


@pytest.mark.parametrize("columns, rows", [(1, [6, 2]), (2, [3, 3, 2]), (7, [1] * 8)])
def test_blocks_of_rows_are_as_large_as_the_cache_allows(columns, rows, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(_optimizer, "BLOCK", 2)
    assert [len(x) for (x,) in _optimizer.by_rows(torch.zeros(8, columns))] == rows


def test_what_does_not_fit_is_named_and_nothing_is_half_applied():
    with pytest.raises(ValueError, match="use_muon=False"):
        nk.Muon([learned(4)])
    with pytest.raises(ValueError, match="match_rms"):
        nk.NorMuon([learned(4, 3, 2, 2)], adjust_lr="match_rms")
    optimizer = nk.Muon([learned(4, 4)])
    with pytest.raises(ValueError, match="lr"):
        optimizer.add_param_group({"params": [learned(3, 3)], "lr": -1.0})
    with pytest.raises(ValueError, match="momentum"):
        optimizer.add_param_group({"params": [learned(3, 3)], "momentum": 1.0})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(TypeError, match="momentun"):
        nk.AGC([learned(4)], lr=0.1, momentun=0.9)
    with pytest.raises(ValueError, match="sdg"):
        nk.AGC([learned(4)], lr=0.1, base="sdg")


def test_the_look_at_gradients_can_be_left_out():
    p = learned(3)
    p.grad[0] = torch.nan
    optimizer = nk.Grams([p])
    optimizer.finite = False
    optimizer.step()
    assert p.isnan().tolist() == [True, False, False]


def test_clipping_in_place_is_that_of_the_optimizer_which_leaves_gradients_alone():
    p, q = learned(4, 6), learned(4, 6)
    given = p.grad.clone()
    nk.AGC([p], lr=RATE).step()
    assert torch.equal(p.grad, given)
    agc.adaptive_clip_grad_([q])
    torch.optim.SGD([q], lr=RATE).step()
    torch.testing.assert_close(p.detach(), q.detach())


def test_a_long_gradient_of_half_precision_is_clipped_and_not_lost():
    p = nn.Parameter(torch.ones(2, 1000, dtype=torch.float16))
    p.grad = torch.full_like(p, 3000.0)
    agc.adaptive_clip_grad_([p])
    torch.testing.assert_close(p.grad, torch.full_like(p, 0.01), rtol=1e-3, atol=0)
    q = nn.Parameter(torch.full((1, 4), 6e4, dtype=torch.float16))
    q.grad = torch.full_like(q, 3000.0)
    agc.adaptive_clip_grad_([q])
    torch.testing.assert_close(q.grad, torch.full_like(q, 600.0), rtol=1e-3, atol=0)


def test_a_sparse_gradient_is_refused_before_any_is_clipped():
    p, table = learned(4, 6), nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    before = p.grad.clone()
    message = "adaptive_clip_grad_: each gradient of params must be a dense tensor, not torch.sparse_coo"
    with pytest.raises(TypeError, match=message):
        agc.adaptive_clip_grad_(parameter for parameter in (p, table.weight))
    assert torch.equal(p.grad, before)


def test_rows_and_columns_of_a_sinkgd_step():
    p = learned(6, 9)
    before = p.detach().clone()
    nk.SinkGD([p], lr=1.0, num_iters=30).step()
    step = before - p.detach()
    torch.testing.assert_close(step.norm(dim=0), torch.full((9,), 6**0.5, dtype=torch.float64))
    torch.testing.assert_close(step.norm(dim=1), torch.full((6,), 9**0.5, dtype=torch.float64), rtol=1e-3, atol=0)


def test_a_global_length_is_that_of_all_groups():
    ps = [learned(4, seed=1), learned(3, 2, seed=3)]
    before = [p.detach().clone() for p in ps]
    nk.NormalizedGD([{"params": [ps[0]]}, {"params": [ps[1]]}], lr=RATE).step()
    moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(ps, before, strict=True)])
    torch.testing.assert_close(moved.norm(), torch.tensor(RATE, dtype=torch.float64))


def test_decay_shrinks_what_a_step_of_fixed_length_then_moves():
    p, plain = learned(4, seed=1), learned(4, seed=1)
    before = p.detach().clone()
    nk.NormalizedGD([p], lr=0.1, weight_decay=0.5).step()
    nk.NormalizedGD([plain], lr=0.1).step()
    torch.testing.assert_close(p.detach(), plain.detach() - 0.05 * before)


def test_lengths_stand_still_once_lawn_holds_them():
    p = learned(4, 5)
    optimizer = nk.LAWN([p], lr=RATE, free_steps=2)
    lengths = []
    for step in range(5):
        p.grad = drawn(4, 5, seed=step)
        optimizer.step()
        lengths.append(p.detach().norm())
    torch.testing.assert_close(torch.stack(lengths[1:]), lengths[1].expand(4))
    assert abs(lengths[0] - lengths[1]) > 1e-4


def test_lawn_holds_the_length_of_a_weight_in_bfloat16():
    p = nn.Parameter(drawn(64, 64).bfloat16())
    optimizer, before = nk.LAWN([p], base="sgd", lr=0.01, free_steps=0), p.detach().double().norm()
    for step in range(30):
        p.grad = 10 * drawn(64, 64, seed=step).bfloat16()
        optimizer.step()
        torch.testing.assert_close(p.detach().double().norm(), before, rtol=2.5e-3, atol=0)


def test_values_of_samples_in_the_order_of_their_visits():
    norms = torch.tensor([0.5, 0.0, 2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    index = torch.tensor([1, 2, 1, 1, 2, 2])
    value = [0.0] * 4
    for norm, i in zip(norms.tolist(), index.tolist(), strict=True):
        value[i] = norm if value[i] == 0 else (value[i] + norm) / 2
    want = 0.5 * torch.tensor(value, dtype=torch.float64) / sum(value) + 0.5 / 4
    torch.testing.assert_close(nk.panda_data_probability(norms, index, size=4), want)
    assert nk.panda_data_probability(norms * 0, index, size=4).tolist() == [0.25] * 4
    assert nk.panda_path_probability(torch.zeros(5)).tolist() == [pytest.approx(0.2)] * 5


def test_lengths_of_each_samples_own_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[1].running_var.fill_(2.0)
    x, target = drawn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    got = grand.scores(model, x, target)
    assert model.training
    model.eval()
    for i in range(5):
        model.zero_grad()
        nn.functional.cross_entropy(model(x[i : i + 1]), target[i : i + 1]).backward()
        own = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
        torch.testing.assert_close(got[i], own)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_lengths_of_gradients_are_taken_in_full_precision(dtype):
    layer, target = nn.Linear(64, 10), torch.zeros(2, dtype=torch.int64)
    nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
    layer.bias.data[0] = 9.5
    layer, x = layer.to(dtype), drawn(2, 64).to(dtype)
    small, large = grand.scores(layer, x, target), grand.scores(layer, 400 * x, target + 1)
    assert small.dtype == dtype
    for got, each, label in ((small, x, target), (large, 400 * x, target + 1)):
        exact = grand.scores(copy.deepcopy(layer).double(), each.double(), label)
        torch.testing.assert_close(got.double(), exact, rtol=0.01, atol=0)


def test_a_solver_with_functions_of_its_own():
    matrix = torch.diag(torch.tensor([1.0, 10.0], dtype=torch.float64))
    solver = nk.GradientNormalizedSmoothness(steps=40)
    xs, gammas = solver.minimize(
        lambda x: x @ matrix @ x / 2, lambda x: matrix @ x, lambda x: matrix, drawn(2), tol=1e-9
    )
    assert xs[-1].norm() < 1e-8
    assert len(xs) == len(gammas) < 40
    at_rest, _ = solver.minimize(
        lambda x: x @ x, lambda x: 2 * x, lambda x: matrix, torch.zeros(2, dtype=torch.float64)
    )
    assert not at_rest.any()


@pytest.mark.parametrize("method", [nk.AdamP, nk.Grams, nk.NorMuon, nk.StableSPAM])
def test_a_state_or_setting_that_does_not_fit_is_refused_before_it_is_loaded(method):
    of_another, own = method([learned(4, 4)]), method([learned(5, 5)])
    of_another.step()
    with pytest.raises(ValueError, match=r"of shape \(4, 4\) for a parameter of shape \(5, 5\)"):
        own.load_state_dict(of_another.state_dict())
    saved = copy.deepcopy(own.state_dict())
    saved["param_groups"][0]["lr"] = -3.0
    with pytest.raises(ValueError, match="lr must"):
        own.load_state_dict(saved)
    assert own.param_groups[0]["lr"] == own.defaults["lr"]
    assert not own.state
    own.step()


@pytest.mark.parametrize("betas", [(0.9,), 0.9, (0.9, 0.99, 0.999), "ab"])
def test_betas_are_two_numbers(betas):
    with pytest.raises((ValueError, TypeError), match="AdamP: betas must be"):
        nk.AdamP([learned(4)], betas=betas)


def test_parameters_are_tensors():
    with pytest.raises(TypeError, match="Muon: params must be tensors, not int"):
        nk.Muon([3])


@pytest.mark.parametrize(
    "method", [nk.AdamP, nk.Conda, nk.Grams, nk.Muon, nk.NorMuon, nk.SinkGD, nk.StableSPAM, nk.SWAN]
)
def test_parameters_without_entries_and_a_tensor_as_learning_rate(method):
    ps = [learned(0, 4), learned(4, 0), learned(4, 4)]
    optimizer = method(ps, lr=torch.tensor(0.01), weight_decay=0.1)
    before = ps[2].detach().clone()
    optimizer.step(), optimizer.step()
    assert all(state.isfinite().all() for own in optimizer.state.values() for state in own.values())
    assert ps[2].isfinite().all()
    assert not torch.equal(ps[2], before)


def test_a_number_is_a_parameter_too():
    scale = learned()
    nk.StableSPAM([scale]).step()
    assert scale.isfinite()


def test_a_number_in_half_precision_steps_beside_matrices():
    """As the scale of CLIP's logits does."""
    params = [nn.Parameter(torch.full(shape, 2.0, dtype=torch.bfloat16)) for shape in ((4, 4), ())]
    optimizer = nk.StableSPAM(params, lr=0.25)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert [p.unique().tolist() for p in params] == [[1.75], [1.75]]
    assert optimizer.state[params[1]]["exp_avg"].dtype is torch.bfloat16


def test_steps_are_counted_in_float32_as_torchs_are_and_as_a_saved_whole_number():
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    optimizer = nk.AdamP([p])
    torch.set_default_dtype(torch.float64)
    try:
        optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)
    saved = optimizer.state_dict()
    assert saved["state"][0]["step"].dtype is torch.float32
    saved["state"][0]["step"] = 4
    optimizer.load_state_dict(saved)
    step = optimizer.state[p]["step"]
    assert (step.item(), step.dtype, step.device.type) == (4, torch.float32, "cpu")


def test_examples_of_an_optimizer_are_the_same_numbers_whatever_the_default_device():
    want = OPTIMIZER.subject(nk.card("lion"))
    with torch.device("meta"):
        got = OPTIMIZER.subject(nk.card("lion"))
    torch.testing.assert_close(got.inputs, want.inputs, rtol=0, atol=0)
    torch.testing.assert_close(dict(got.learned), dict(want.learned), rtol=0, atol=0)


@pytest.mark.parametrize("base", ["Muon", "normuon"])
def test_a_base_gives_groups_what_it_gives_its_own(base):
    models = [nn.Linear(4, 4, dtype=torch.float64) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    groups = [nk.param_groups(model, "muon") for model in models]
    around, alone = nk.AGC(groups[0], base=base, lr=RATE, clipping=1e9), nk.create(base, groups[1], lr=RATE)
    for step in range(3):
        for model, optimizer in zip(models, (around, alone), strict=True):
            model(drawn(3, 4, seed=step)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(p, q)
    with pytest.raises(ValueError, match="matrices"):
        around.add_param_group({"params": [learned(4)]})
    assert len(around.param_groups) == len(groups[0])


@pytest.mark.parametrize("name, idle", [("lawn", {"free_steps": 99}), ("relevance-decay", {"gamma": 0.0})])
@pytest.mark.parametrize("base", ["lamb", "stable-adamw", "muoneq", "pmuon"])
def test_a_base_keeps_its_settings_and_its_count_of_steps(name, idle, base):
    p, q = learned(4, 4), learned(4, 4)
    around, alone = nk.create(name, [p], base=base, lr=RATE, **idle), nk.create(base, [q], lr=RATE)
    for step in range(4):
        p.grad, q.grad = drawn(4, 4, seed=step), drawn(4, 4, seed=step)
        around.step(), alone.step()
        if step == 1:  # a run goes on from its file, in another optimizer's copy
            saved = copy.deepcopy(around.state_dict())
            around = copy.deepcopy(nk.create(name, [p], base=base, lr=1.0, **idle))
            (p,) = around.param_groups[0]["params"]
            around.load_state_dict(saved)
    assert torch.equal(p, q)


def test_a_strength_falls_by_the_methods_own_count_of_steps():
    p, q = learned(4, 4), learned(4, 4)
    options = {"lr": 0.0, "gamma": 0.5, "decay_steps": 8}
    optimizers = [nk.RelevanceDecay([x], base=base, **options) for x, base in ((p, "lamb"), (q, "sgd"))]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.step()
    ours, theirs = (o.changed(x, o.param_groups[0]) for x, o in zip((p, q), optimizers, strict=True))
    assert torch.equal(ours, theirs)


def test_a_base_brings_the_arguments_of_its_name():
    p, q = learned(4, 4), learned(4, 4)
    around = nk.AGC([p], base="Muon-Moonlight", lr=RATE, clipping=None)
    alone = nk.create("muon-moonlight", [q], lr=RATE)
    around.step(), alone.step()
    assert around.param_groups[0]["adjust_lr"] == "match_rms_adamw"
    assert torch.equal(p, q)


def test_a_base_that_has_no_name_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^AGC: base must be one of .*'adamw', 'agc', .*'sgd', .*'swan'"):
        nk.AGC([learned(4)], lr=0.1, base=["sgd"])


@pytest.mark.parametrize("name, setting", [("agc", {"eps": 1.0}), ("relevance-decay", {"alpha": 1e-3, "gamma": 1.0})])
@pytest.mark.parametrize("base", ["sgd", "adamw", "rmsprop"])
def test_a_setting_in_a_group_is_that_of_an_argument_whatever_the_base_calls_so(name, setting, base):
    params = [nn.Parameter(drawn(4, 3) * 1e-2) for _ in range(3)]
    first = nk.create(name, [params[0]], base=base, lr=0.1, **setting)
    grouped = nk.create(name, [{"params": [params[1]], **setting}], base=base, lr=0.1)
    copied = nk.create(name, [{**grouped.param_groups[0], "params": [params[2]]}], base=base, lr=0.1)
    for p, optimizer in zip(params, (first, grouped, copied), strict=True):
        p.grad = drawn(4, 3, seed=1)
        optimizer.step()
    assert torch.equal(params[1], params[0])
    assert torch.equal(params[2], params[0])


def test_the_parameter_is_named_whose_gradient_is_not_finite():
    a, b, c = (torch.nn.Parameter(torch.ones(size)) for size in (2, 3, 4))
    optimizer = nk.create("adamp", [{"params": [a]}, {"params": [b, c]}])
    a.grad, b.grad, c.grad = torch.ones(2), torch.ones(3), torch.tensor([1.0, 2.0, 3.0, torch.inf])
    with pytest.raises(FloatingPointError, match=r"a parameter of shape \(4,\), group 1, is not finite; nothing"):
        optimizer.step()


LAMBS = [
    {},
    {"clip": True},
    {"decoupled": True},
    {"weight_decay": 0.0},
    {"weight_decay": 0.0, "always": True, "clip": True},
    {"correct_bias": False, "max_grad_norm": 0.5},
]


@pytest.mark.parametrize("options", LAMBS, ids=str)
def test_steps_of_lamb_are_its_equations(options):
    """Of weights far longer than Adam's step, far shorter, and of length 0."""
    settings = {
        "weight_decay": 0.1,
        "correct_bias": True,
        "max_grad_norm": None,
        "clip": False,
        "always": False,
    } | options
    ps = [(size * drawn(3, 4, seed=at)).requires_grad_() for at, size in enumerate((50.0, 0.01, 0.0))]
    optimizer = nk.LAMB(ps, lr=RATE, betas=(0.8, 0.9), eps=1e-3, **{"weight_decay": 0.1, **options})
    want, m, v = [p.detach().clone() for p in ps], [0.0] * 3, [0.0] * 3
    decay = settings["weight_decay"]
    for t in (1, 2, 3):
        gradients = [drawn(3, 4, seed=10 * t + at) for at in range(3)]
        for p, g in zip(ps, gradients, strict=True):
            p.grad = g.clone()
        optimizer.step()
        length = sum(g.square().sum() for g in gradients) ** 0.5
        for at, (w, g) in enumerate(zip(want, gradients, strict=True)):
            g = g / max(1.0, length / settings["max_grad_norm"]) if settings["max_grad_norm"] else g
            m[at], v[at] = 0.8 * m[at] + 0.2 * g, 0.9 * v[at] + 0.1 * g**2
            c1, c2 = (1 - 0.8**t, 1 - 0.9**t) if settings["correct_bias"] else (1.0, 1.0)
            u = (m[at] / c1) / ((v[at] / c2).sqrt() + 1e-3)
            if options.get("decoupled"):
                w *= 1 - RATE * decay
            else:
                u = u + decay * w
            q = w.norm() / u.norm() if (decay or settings["always"]) and w.norm() > 0 else torch.ones(())
            want[at] = w - RATE * (q.clamp(max=1.0) if settings["clip"] else q) * u
        for p, w in zip(ps, want, strict=True):
            torch.testing.assert_close(p.detach(), w)


def test_a_group_without_a_limit_is_not_cut_by_that_of_another():
    """The first gradient is long, and what it is divided by shows in the second step, as Adam forgets a factor."""
    ps = [drawn(3, 4, seed=7).requires_grad_() for _ in range(3)]
    both = nk.LAMB([{"params": ps[:1], "max_grad_norm": 0.5}, {"params": ps[1:2]}], lr=RATE)
    alone = nk.LAMB(ps[2:], lr=RATE)
    for size in (10.0, 0.1):
        for p in ps:
            p.grad = size * drawn(3, 4, seed=int(size))
        both.step(), alone.step()
    assert torch.equal(ps[1], ps[2])
    assert not torch.allclose(ps[0], ps[1], rtol=1e-3)


def test_a_cautious_step_is_enlarged_a_thousand_times_at_most():
    p = nn.Parameter(torch.zeros(2000, dtype=torch.float64))
    optimizer = nk.Cautious([p], base="sgd", lr=1.0, momentum=0.9)
    p.grad = torch.ones_like(p)
    optimizer.step()
    before = p.detach().clone()
    p.grad = torch.full_like(p, -0.1)
    p.grad[0] = 1.0  # alone agrees with its momentum of 1.9
    optimizer.step()
    torch.testing.assert_close((before - p)[:2].detach(), torch.tensor([1900.0, 0.0], dtype=torch.float64))
