"""Methods over the batch: what the contract and the goldens do not reach."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit import ops
from normkit.activation.batch.alpha_batchnorm import core_loss
from normkit.ops.scan import recurrence
from processes import over_processes


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def rand(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def build(name, *args, **kwargs):
    """Build a method in float64, with parameters off their initial values."""
    torch.manual_seed(0)
    module = nk.create(name, *args, **kwargs).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def step(module, *inputs, seed=9):
    """Forward and backward; return the result, the input's gradient, the parameters' and the state."""
    x = inputs[0].detach().clone().requires_grad_(True)
    module.zero_grad(set_to_none=True)
    y = module(x, *inputs[1:])
    if y.requires_grad:
        y.backward(rand(*y.shape, seed=seed))
    return y.detach(), x.grad, {n: p.grad for n, p in module.named_parameters()}, state(module)


def state(module):
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


# Two processes equal one: what the cards' example arguments leave out

SHARES = (3, 0, 4)
VARIANTS = {
    "ghosts across shards": ("ghost-batchnorm", {"ghost_size": 3}, (7, 4, 2, 3), True),
    "online, an empty shard": ("onlinenorm", {"forward_decay": 0.8, "backward_decay": 0.7}, (7, 4, 2, 3), True),
    "online, at an offset": ("onlinenorm", {"forward_decay": 0.5, "backward_decay": 0.7}, (7, 4, 2, 3), True),
    "online, layer scaling": ("onlinenorm", {"guard": "layer-scaling"}, (7, 4), True),
    "renorm": ("batch-renorm", {"momentum": 0.3}, (7, 4, 2), True),
    "estimate": ("batch-channel-norm", {"num_groups": 2, "estimate": True}, (7, 4, 2, 3), True),
    "tasks": ("adab2n", {"num_tasks": 3, "kappa": 0.4}, (7, 4, 2), True),
    "alpha in evaluation": ("alpha-batchnorm", {"target_weight": 0.4}, (7, 4, 2), False),
    "utterances": ("attentive-batchnorm", {"hidden_features": 3, "level": "utterance"}, (7, 5, 4), True),
    "force factor": ("batchnorm-linear-bounded", {"force_factor": 2.0, "mean_reduction": True}, (7, 4), True),
    "absolute": ("l1-batchnorm", {}, (7, 4, 2), True),
    "power, an empty shard": ("powernorm", {"warmup_iters": 1}, (7, 5, 4), True),
    "unified, an empty shard": ("unifiednorm", {"warmup_iters": 0, "window_size": 1}, (7, 5, 4), True),
}


def run(variant, rank=None):
    """Two steps on the whole batch, or on a rank's part of it."""
    name, arguments, shape, train = VARIANTS[variant]
    module = build(name, 4, **arguments, sync=rank is not None).train(train)
    if name == "adab2n":
        module.end_task()
    offset = 1e6 if "offset" in variant else 0.0
    if offset:
        module.running_mean.fill_(offset)
    begin, count = (0, sum(SHARES)) if rank is None else (sum(SHARES[:rank]), SHARES[rank])
    found = []
    for seed in range(2):
        given = [rand(*shape, seed=seed) + offset, torch.tensor([0, 1, 1, 0, 1, 1, 1])][: 2 if name == "adab2n" else 1]
        x, *rest = (g.narrow(0, begin, count) for g in given)
        x = x.clone().requires_grad_(True)
        y = module(x, *rest)
        module.zero_grad(set_to_none=True)
        y.backward(rand(*shape, seed=9).narrow(0, begin, count))
        found.append((y.detach(), x.grad, {n: p.grad for n, p in module.named_parameters() if p.grad is not None}))
    return found, state(module)


def work():
    return {variant: run(variant, torch.distributed.get_rank()) for variant in VARIANTS}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return over_processes(work, len(SHARES), tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_processes_equal_one(variant, shards):
    want, last = run(variant)
    for index, (y, dx, gradients) in enumerate(want):
        got = [shard[variant][0][index] for shard in shards]
        close(torch.cat([g[0] for g in got]), y)
        close(torch.cat([g[1] for g in got]), dx)
        for name, gradient in gradients.items():
            close(sum(g[2][name] for g in got if name in g[2]), gradient)
    for shard in shards:
        close(shard[variant][1], last)


# Compiled and checkpointed, a pass that reads the state it moves is the plain pass


@pytest.mark.parametrize("variant", ["estimate", "tasks", "renorm", "online, an empty shard"])
@pytest.mark.parametrize("how", ["compiled", "checkpointed"])
def test_state_that_is_read_and_moved(variant, how):
    name, arguments, shape, _ = VARIANTS[variant]
    plain = build(name, 4, **arguments)
    if name == "adab2n":
        plain.end_task()
    twin = copy.deepcopy(plain)
    wrapped = Wrapped(twin, how)
    for seed in range(3):
        given = [rand(*shape, seed=seed), torch.tensor([0, 1, 1, 0, 1, 1, 1])][: 2 if name == "adab2n" else 1]
        want = step(Wrapped(plain, "plain"), *given)
        close(step(wrapped, *given), want)
    torch._dynamo.reset()


class Wrapped(nn.Module):
    """A module and, where it keeps one, its loss, in one number each."""

    def __init__(self, module, how):
        super().__init__()
        self.module, self.how = module, how
        self.call = torch.compile(self.plain, backend="aot_eager", fullgraph=True) if how == "compiled" else self.plain

    def plain(self, *inputs):
        if isinstance(self.module, nk.AdaB2N):
            y, loss = self.module.forward_with_loss(*inputs)
            return y * (1 + loss)
        return self.module(*inputs)

    def forward(self, *inputs):
        return checkpoint(self.call, *inputs, use_reentrant=False) if self.how == "checkpointed" else self.call(*inputs)


# Online normalization


def test_recurrence_equals_the_loop():
    for steps, size in itertools.product((0, 1, 2, 5, 33), (0.9, 1e3)):
        decay, drive, start = size * rand(steps, 3, seed=1), rand(steps, 3, seed=2), rand(3, seed=3)
        z, want = start, []
        for d, f in zip(decay, drive, strict=True):
            want.append(z)
            z = d * z + f
        before, after = recurrence(decay, drive, start)
        close(before, torch.stack(want) if want else drive, rtol=1e-10, atol=1e-12)
        close(after, z, rtol=1e-10, atol=1e-12)


def test_recurrence_does_not_overflow_where_the_loop_does_not():
    decay, drive = torch.full((64, 1), 1e4), torch.zeros(64, 1)
    before, after = recurrence(decay, drive, torch.zeros(1))
    assert not before.any()
    assert not after.any()


class OnlineLoop:
    """The method as published: one sample after another."""

    def __init__(self, channels, a, b, eps):
        self.m, self.s = torch.zeros(channels).double(), torch.ones(channels).double()
        self.u, self.v = torch.zeros(channels).double(), torch.zeros(channels).double()
        self.a, self.b, self.eps = a, b, eps

    def forward(self, x):
        a, self.h, self.sigma = self.a, [], []
        for sample in x.flatten(2):
            self.sigma.append((self.s + self.eps).sqrt())
            self.h.append((sample - self.m[:, None]) / self.sigma[-1][:, None])
            mu, var = sample.mean(1), sample.var(1, unbiased=False)
            self.s = a * self.s + (1 - a) * var + a * (1 - a) * (mu - self.m) ** 2
            self.m = self.m + (1 - a) * (mu - self.m)
        return torch.stack(self.h).view(x.shape)

    def backward(self, grad):
        b, dx = self.b, []
        for g, h, sigma in zip(grad.flatten(2), self.h, self.sigma, strict=True):
            q = g - (1 - b) * self.v[:, None] * h
            self.v = self.v + (q * h).mean(1)
            d = q / sigma[:, None] - (1 - b) * self.u[:, None]
            self.u = self.u + d.mean(1)
            dx.append(d)
        return torch.stack(dx).view(grad.shape)


@pytest.mark.parametrize("a, b", [(0.999, 0.99), (0.6, 0.3), (0.9, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_onlinenorm_equals_the_loop(a, b, offset):
    module = build("onlinenorm", 3, forward_decay=a, backward_decay=b, affine=False, guard=None)
    loop = OnlineLoop(3, a, b, 1e-5)
    for seed, shape in enumerate([(1, 3, 4), (32, 3, 2, 2), (7, 3, 1), (2, 3, 5)]):
        x, g = offset + 2 * rand(*shape, seed=seed), rand(*shape, seed=seed + 50)
        given = x.clone().requires_grad_(True)
        y = module(given)
        y.backward(g)
        close(y, loop.forward(x), rtol=1e-10, atol=1e-10)
        want = loop.backward(g)
        close(given.grad, want, rtol=1e-9, atol=1e-9 * want.abs().max().item())
        moved = module.running_mean, module.running_var, module.u, module.v
        for got, wanted in zip(moved, (loop.m, loop.s, loop.u, loop.v), strict=True):
            close(got, wanted, rtol=1e-9, atol=1e-9 * (1 + wanted.abs().max().item()))


def test_onlinenorm_affine_and_guard_are_the_ordinary_ones():
    module = build("onlinenorm", 3, clamp_value=0.7)
    bare = build("onlinenorm", 3, affine=False, guard=None)
    x, g = rand(6, 3, 4), rand(6, 3, 4, seed=1)
    given, plain = (x.clone().requires_grad_(True) for _ in range(2))
    module(given).backward(g)
    weight, bias = (p.detach().clone().requires_grad_(True) for p in (module.weight, module.bias))
    (bare(plain) * weight[:, None] + bias[:, None]).clamp(-0.7, 0.7).backward(g)
    close(given.grad, plain.grad)
    close((module.weight.grad, module.bias.grad), (weight.grad, bias.grad))
    close(module.v, bare.v)


def test_onlinenorm_without_a_backward_pass_moves_only_the_moments():
    module = build("onlinenorm", 3)
    module(rand(4, 3))
    assert module.running_mean.any()
    assert not module.u.any()
    assert not module.v.any()


# Ghost batches


@pytest.mark.parametrize("samples, size", [(10, 4), (7, 2), (3, 4), (8, 4), (9, 1), (13, 5)])
def test_ghosts_equal_batchnorm_of_the_chunks(samples, size):
    module = build("ghost-batchnorm", 3, ghost_size=size, momentum=0.3)
    peer = nn.BatchNorm1d(3, momentum=0.3).double()
    peer.load_state_dict({**module.state_dict(), "num_batches_tracked": torch.tensor(0)})
    x = rand(samples, 3, 4)
    y, dx, gradients, moved = step(module, x)
    given = x.clone().requires_grad_(True)
    want = torch.cat([peer(chunk) for chunk in given.chunk(max(1, samples // size))])
    want.backward(rand(*x.shape, seed=9))
    close(y, want.detach())
    close(dx, given.grad)
    close((gradients["weight"], gradients["bias"]), (peer.weight.grad, peer.bias.grad))
    close((moved["running_mean"], moved["running_var"]), (peer.running_mean, peer.running_var))


def test_a_ghost_of_one_value_is_refused():
    module = build("ghost-batchnorm", 3, ghost_size=2)
    before = state(module)
    with pytest.raises(ValueError, match="7 samples are cut into ghosts of 3"):
        module(rand(7, 3))
    close(state(module), before)


def test_an_empty_training_batch_moves_nothing():
    names = ("ghost-batchnorm", "batch-renorm", "l1-batchnorm", "onlinenorm", "decorrelated-batchnorm", "iternorm")
    for name in names:
        module = build(name, 3)
        module(rand(5, 3, 2))
        before = state(module)
        assert module(rand(0, 3, 2)).shape == (0, 3, 2)
        close(state(module), before)


# Batch renormalization, L1


def test_renorm_trains_the_function_that_it_evaluates():
    module = build("batch-renorm", 3, r_max=100.0, d_max=100.0)
    module.running_mean.fill_(0.2)
    x = rand(6, 3, 4)
    want = copy.deepcopy(module).eval()(x)
    close(module(x), want)


def test_renorm_schedule_starts_as_batchnorm():
    module = build("batch-renorm", 3)
    module.r_max, module.d_max = 1.0, 0.0
    x = rand(6, 3, 4)
    close(module(x), F.batch_norm(x, None, None, module.weight, module.bias, training=True, eps=1e-3))


def test_l1_gradient_is_the_closed_form():
    module = build("l1-batchnorm", 3, affine=False)
    x, g = rand(6, 3), rand(6, 3, seed=9)
    _, dx, _, moved = step(module, x)
    centered = x - x.mean(0)
    deviation = centered.abs().mean(0) + 1e-5
    sign = centered.sign()
    want = (g - g.mean(0)) - (sign - sign.mean(0)) * (g * centered / deviation).mean(0)
    close(dx, want / deviation)
    close(moved["running_deviation"], 0.9 + 0.1 * (deviation - 1e-5))


# Batch-channel normalization


def test_one_value_needs_the_estimate():
    with pytest.raises(ValueError, match="one value a channel"):
        build("batch-channel-norm", 4, num_groups=2)(rand(1, 4))
    y, dx, _, moved = step(build("batch-channel-norm", 4, num_groups=2, estimate=True), rand(1, 4))
    assert torch.isfinite(y).all()
    assert torch.isfinite(dx).all()
    close(moved["running_var"], 0.9 + 0.1 * rand(1, 4)[0].square())


def test_groups_of_batch_channel_norm_divide_the_channels():
    with pytest.raises(ValueError, match=r"^BatchChannelNorm: num_groups=4 does not divide num_features=6"):
        nk.create("batch-channel-norm", 6, num_groups=4)


# Membrane potential


def test_folding_the_threshold_changes_no_spike():
    module = build("membrane-batchnorm", 6, steps=4, threshold=0.8)
    module(rand(4, 5, 6, 3))
    with torch.no_grad():
        module.weight.copy_(torch.tensor([1.0, -0.7, 0.0, -0.0, 0.0, 2.0]))
        module.bias.copy_(torch.tensor([0.1, 0.3, 0.5, 0.5, 0.3, 0.4]))
    x = 2 * rand(4, 5, 6, 3, seed=1)
    theta, weight = module.folded_threshold()[:, None], module.weight[:, None]
    u, spikes = torch.zeros(5, 6, 3).double(), []
    for now in x:
        u = module.decay * u + now
        spike = torch.where(weight < 0, u < theta, u > theta).double()
        u = u * (1 - spike)
        spikes.append(spike)
    y = module.eval()(x)
    close(y, torch.stack(spikes), rtol=0, atol=0)
    assert y[:, :, 2].all()
    assert not y[:, :, 4].any()


def test_spikes_have_the_surrogate_gradient():
    module = nk.create("membrane-batchnorm", 1, steps=1, threshold=2.0, temperature=1.5, eps=0.0).double().eval()
    z = torch.tensor([-0.2, 0.1, 0.9, 1.1, 1.9, 2.2]).double().view(1, 6, 1).requires_grad_(True)
    module(z).sum().backward()
    a = z.detach() / 2
    k = torch.tensor(1.5).double()
    slope = k * (1 - torch.tanh(k * (a - 0.5)) ** 2) / (2 * torch.tanh(k / 2)) / 2
    close(z.grad, torch.where((a >= 0) & (a <= 1), slope, 0))


def test_membrane_batchnorm_counts_its_steps():
    module = build("membrane-batchnorm", 3, steps=2)
    with pytest.raises(ValueError, match="T=2"):
        module(rand(3, 4, 3))
    module(rand(2, 4, 3))
    assert module.num_batches_tracked == 2


# Continual learning


def test_adab2n_weighs_tasks():
    module = build("adab2n", 3, num_tasks=4, init_weight=0.5)
    module.end_task(), module.end_task()
    x, ids = rand(5, 3, 2), torch.tensor([0, 2, 2, 2, 0])
    with torch.no_grad():
        share = module.task_weight[:3].exp() + torch.tensor([2.0, 0.0, 3.0])
        share = share / share.sum()
        w = torch.stack([share[0] / 2, share[2] / 3])[(ids == 2).long()].view(5, 1)
        mean = (w * x.mean(2)).sum(0)
        var = (w * (x - mean[:, None]).square().mean(2)).sum(0)
        want = (x - mean[:, None]) / (var + 1e-5).sqrt()[:, None] * module.weight[:, None] + module.bias[:, None]
    y, loss = module.forward_with_loss(x, ids)
    close(y, want)
    close(module.running_mean, 0.1 * mean)
    close(loss, (0.81 * mean.square()).mean() + (0.81 * (var - 1).square()).mean())
    (y.square().sum() + loss).backward()
    assert module.task_weight.grad[:3].all()
    assert module.task_weight.grad[3] == 0
    assert copy.deepcopy(module).loss is None


def test_adab2n_refuses_tasks_to_come():
    module = build("adab2n", 3, num_tasks=2)
    with pytest.raises(ValueError, match="task_ids"):
        module(rand(4, 3), torch.tensor([0, 1, 0, 0]))
    module.end_task()
    module(rand(4, 3), torch.tensor([0, 1, 0, 0]))
    with pytest.raises(ValueError, match="num_tasks=2"):
        module.end_task()


def test_adab2n_restarts_with_the_same_rate():
    module = build("adab2n", 3, num_tasks=2, kappa=0.4)
    module(rand(4, 3))
    other = build("adab2n", 3, num_tasks=2, kappa=0.4)
    other.load_state_dict(module.state_dict())
    x = rand(4, 3, seed=1)
    close(step(module, x), step(other, x))
    first = 0.1**0.4
    close(module.last_eta, torch.tensor([first / (first + 0.9**0.4)]).double())


def test_adab2n_counts_more_batches_than_float16_has():
    module = nk.create("adab2n", 3, num_tasks=2, kappa=0.0).half()
    module.num_batches_tracked.fill_(69_999)
    module(100 * rand(4, 3, dtype=torch.float16))
    assert (module.running_var > 1).all()


# Test time


def test_target_weight_goes_from_source_to_test_batch():
    x = 3 + 2 * rand(6, 3, 4)
    source, target = (build("alpha-batchnorm", 3, target_weight=w).eval() for w in (0.0, 1.0))
    close(source(x), F.batch_norm(x, source.running_mean, source.running_var, source.weight, source.bias))
    mean, var = x.mean((0, 2)), x.transpose(0, 1).flatten(1).var(1)
    close(target(x), F.batch_norm(x, mean, var, target.weight, target.bias))
    with pytest.raises(ValueError, match="one value a channel"):
        source(rand(1, 3))


def test_core_loss():
    close(core_loss(torch.zeros(5, 4)), torch.tensor(0.75))
    logits = (1e4 * torch.eye(3)[[0, 1, 1]]).requires_grad_(True)
    loss = core_loss(logits)
    loss.backward()
    assert loss == 0
    assert not torch.isnan(logits.grad).any()
    p = rand(6, 3).softmax(1)
    weight = 1 + torch.exp(torch.special.entr(p).sum(1).neg())
    correlation = torch.einsum("nk,n,nl->kl", p, 6 * weight / weight.sum(), p)
    want = 1 - (correlation.diagonal() / correlation.sum(1)).mean()
    close(core_loss(p.log()), want)
    assert torch.autograd.gradcheck(core_loss, (rand(4, 3).requires_grad_(True),))
    with pytest.raises(ValueError, match="logits"):
        core_loss(torch.zeros(3))


# Attention over frames


@pytest.mark.parametrize("level", ["frame", "utterance"])
def test_other_frames_enter_no_statistic(level):
    module = build("attentive-batchnorm", 4, hidden_features=3, level=level)
    x, mask = rand(3, 5, 4), torch.arange(5) < torch.tensor([[5], [2], [3]])
    other = torch.where(mask.unsqueeze(-1), x, float("nan"))
    a, b = copy.deepcopy(module), copy.deepcopy(module)
    close(a(x, mask)[mask], b(other, mask)[mask])
    close(state(a), state(b))
    real = x[mask]
    close(a.running_mean, 0.1 * real.mean(0))
    close(a.running_var, 0.9 + 0.1 * real.var(0))


def test_attentive_batchnorm_starts_as_batchnorm():
    module = nk.create("attentive-batchnorm", 4, hidden_features=3).double()
    x = rand(3, 5, 4)
    close(module(x), F.batch_norm(x.flatten(0, 1), None, None, training=True).view(x.shape))


# Without a mean


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_lengths_of_any_size(size):
    x = rand(5, 4, dtype=torch.float32)
    module = nk.create("batchnorm-linear-bounded", 4)
    close(module(size * x), module(x))
    assert torch.isnan(module(torch.zeros(5, 4))).all()


def test_gradients_do_not_grow_with_depth():
    def slope(orthogonal):
        """How much larger the logarithm of the first layers' gradients is than that of the last."""
        torch.manual_seed(0)
        x = torch.randn(16, 16).double()
        weights = [torch.randn(16, 16).double() / 4 for _ in range(200)]
        weights = [torch.linalg.qr(w)[0] if orthogonal else w for w in weights]
        weights = [w.requires_grad_(True) for w in weights]
        norm = nk.create("batchnorm-linear-bounded", 16)
        for w in weights:
            x = norm(x @ w.T)
        F.cross_entropy(x, torch.arange(16)).backward()
        sizes = torch.stack([w.grad.norm().log() for w in weights])
        return (sizes[:20].mean() - sizes[-20:].mean()).item()

    assert abs(slope(orthogonal=True)) < 0.5
    assert slope(orthogonal=False) > 2


@pytest.mark.parametrize("steps, running, ratio", [(1000, 1e-8, 1.0), (1001, 1e-8, 5.0), (1001, 1e8, 0.2)])
def test_unifiednorm_limits_its_correction_of_the_gradient_after_a_thousand_steps(steps, running, ratio):
    module = nk.create("unifiednorm", 3, warmup_iters=0, outlier_filtration=False, dtype=torch.float64)
    module.buffer_x2.fill_(2.0)
    module.running_var.fill_(running)
    module.iters.fill_(steps - 1)
    x = rand(5, 3)
    module(x).sum().backward()
    v = (2.0 ** (module.buffer_x2.shape[0] - 1) * x.square().mean(0)) ** (1 / module.buffer_x2.shape[0])
    close(module.weight.grad, ratio * (x / (v + module.eps).sqrt()).sum(0))


def test_the_mixed_moments_are_constants_for_the_gradient():
    module = nk.create("alpha-batchnorm", 3, target_weight=0.4, dtype=torch.float64).eval()
    x = rand(6, 3).requires_grad_()
    module(x).sum().backward()
    var = 0.6 * module.running_var + 0.4 * x.detach().var(0)
    close(x.grad, (var + module.eps).rsqrt().expand_as(x))


@pytest.mark.parametrize("shape", [(6, 3), (0, 3)], ids=["kernel", "formula"])
def test_the_moments_that_a_batch_norm_returns_hold_no_graph(shape):
    """They move running averages, and would keep every batch's graph alive."""
    y, found = ops.batch_norm(rand(*shape).requires_grad_())
    assert y.requires_grad
    assert not any(part.requires_grad for part in found)


@pytest.mark.parametrize("name, axis", [("powernorm", 0), ("unifiednorm", 1)])
def test_rows_alone_are_padded_as_sequences_of_one(name, axis):
    x, padded = rand(6, 4), torch.tensor([False, True, False, False, True, False]).unsqueeze(1)
    rows, sequences = build(name, 4), build(name, 4)
    close(rows(x, padded), sequences(x.unsqueeze(axis), padded).squeeze(axis))
    close(rows.state_dict(), sequences.state_dict())
    with pytest.raises(ValueError, match=r"pad_mask must .*\(6, 1\)"):
        rows(x, torch.cat([padded, padded], 1))


@pytest.mark.parametrize("warmup", [0, 100])
@pytest.mark.parametrize("name", ["powernorm", "unifiednorm"])
def test_a_batch_without_tokens_is_no_step(name, warmup):
    """A rank whose shard is empty, or a batch of padding: its mean square of 0 would shrink the averages for good."""
    module, x = build(name, 4, warmup_iters=warmup), 3 * rand(6, 5, 4)
    for seed in range(6):
        step(module, x + rand(6, 5, 4, seed=seed), seed=seed)
    before, expected = state(module), copy.deepcopy(module)(x)
    step(module, rand(0, 5, 4))
    close(state(module), before)
    module(x, torch.ones(x.shape[:2] if name == "unifiednorm" else x.shape[1::-1], dtype=torch.bool))
    close(state(module), before)
    close(module(x), expected)


@pytest.mark.parametrize("name, shape", [("powernorm", (3, 5, 4)), ("unifiednorm", (3, 5, 4)), ("onlinenorm", (3, 4))])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_backward_pass_of_the_authors_is_not_differentiated(name, shape, dtype):
    norm, x = build(name, 4).to(dtype), rand(*shape, dtype=dtype).requires_grad_()
    before = nn.Linear(4, 4, dtype=dtype)  # by which a penalty has a gradient, also where the norm's own is left out
    (slope,) = torch.autograd.grad(norm(before(x)).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="backward pass has no derivative"):
        slope.square().sum().backward()

    def loss(x):
        state = {key: value.detach().clone() for key, value in norm.state_dict().items()}
        return torch.func.functional_call(norm, state, (before(x),)).sum()

    gradient = torch.func.grad(loss)
    with pytest.raises(NotImplementedError, match="backward pass has no derivative"):
        torch.func.grad(lambda x: gradient(x).square().sum())(x.detach())


OVERFLOWN = [("powernorm", (3, 5, 4)), ("unifiednorm", (3, 5, 4)), ("onlinenorm", (3, 4)), ("onlinenorm", (3, 4, 2, 3))]


@pytest.mark.parametrize("name, shape", OVERFLOWN)
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_gradient_that_overflows_leaves_the_backward_pass_as_it_was(name, shape, bad):
    """As the first of a GradScaler does, which then skips the step: the state would be NaN for good."""
    module, x, grad = build(name, 4), rand(*shape), rand(*shape, seed=1)
    step(module, x)
    before = state(module)
    grad.view(-1)[0] = bad  # the first channel of all
    seen = x.clone().requires_grad_()
    module(seen).backward(grad)
    assert not seen.grad.isfinite().all()
    for key, value in state(module).items():
        assert value.isfinite().all(), key
        if key in ("ema_gz", "u", "v"):
            assert (value != before[key])[1:].all()
