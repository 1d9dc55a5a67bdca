"""Statistics that span samples: moments, masks, merging, processes, running estimates."""

import functools
import pickle
import threading
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from normkit import statistics
from normkit.running import averaging, is_averaging, once, recomputing, track
from normkit.statistics import merge, moments
from normkit.threads import uncompiled
from processes import over_processes

AXES = (0, 2)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


# moments


@pytest.mark.parametrize("axes", [(0,), (0, 2), (-1, 0), (0, 1, 2), ()], ids=str)
def test_moments_are_those_of_the_values(axes):
    x = draw(5, 3, 4)
    found = moments(x, axes)
    by_axes = [a % 3 for a in axes]
    rows = x.permute(*[a for a in range(3) if a not in by_axes], *by_axes).reshape(
        *[x.shape[a] for a in range(3) if a not in by_axes], -1
    )
    mean = rows.sum(-1) / rows.shape[-1]
    close(found.mean, mean)
    close(found.var, ((rows - mean.unsqueeze(-1)) ** 2).sum(-1) / rows.shape[-1])
    assert found.count.item() == rows.shape[-1]
    close(statistics.mean_over(x, axes), mean)


def test_the_unbiased_variance_of_one_value_is_zero():
    found = moments(draw(4, 3), (0,))
    close(found.unbiased(), found.var * 4 / 3)
    close(moments(draw(1, 3), (0,)).unbiased(), torch.zeros(3, dtype=torch.float64))


def test_no_values_give_zeros():
    found = moments(draw(0, 3), (0,))
    close(found.mean, torch.zeros(3, dtype=torch.float64))
    close(found.var, torch.zeros(3, dtype=torch.float64))
    assert found.count == 0


@pytest.mark.parametrize("mask_shape", [(5, 1, 1), (5, 1, 4), (5, 3, 4), (4,)], ids=str)
def test_masked_values_do_not_count(mask_shape):
    x = draw(5, 3, 4)
    mask = torch.rand(mask_shape, generator=torch.Generator().manual_seed(1)) < 0.5
    found = moments(x, AXES, mask=mask)
    full = mask.expand(x.shape)
    for channel in range(3):
        values = x[:, channel][full[:, channel]]
        close(found.mean[channel], values.mean())
        close(found.var[channel], values.var(correction=0))
        assert found.count.expand(3)[channel] == len(values)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e308])
def test_masked_values_may_be_anything_also_in_the_gradient(poison):
    x = draw(6, 3)
    mask = torch.tensor([True, True, False, True, False, True]).unsqueeze(-1)
    poisoned = torch.where(mask, x, poison).requires_grad_(True)
    clean = x[mask[:, 0]].requires_grad_(True)
    found, want = moments(poisoned, (0,), mask=mask), moments(clean, (0,))
    close(found.mean, want.mean)
    close(found.var, want.var)
    (found.mean.sin() + found.var.cos()).sum().backward()
    (want.mean.sin() + want.var.cos()).sum().backward()
    close(poisoned.grad[mask[:, 0]], clean.grad)
    assert not poisoned.grad[~mask[:, 0]].any()


def test_a_mask_that_hides_everything_gives_zeros_and_no_gradient():
    x = draw(4, 2).requires_grad_(True)
    found = moments(x, (0,), mask=torch.zeros(4, 1, dtype=torch.bool))
    assert not found.mean.any()
    assert not found.var.any()
    (found.mean + found.var).sum().backward()
    assert not x.grad.any()


def test_moments_have_the_right_derivatives():
    x, mask = draw(4, 2, 3).requires_grad_(True), draw(4, 1, 3, seed=1) > -0.5

    def call(x):
        return moments(x, AXES, mask=mask)[:2]

    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "strided"])
def test_an_offset_of_1e4_costs_float32_no_variance(layout):
    x = draw(64, 8, 17, dtype=torch.float32) + 1e4
    if layout == "channels last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "strided":
        x = torch.stack([x, -x], -1)[..., 0]
    found, exact = moments(x, AXES), moments(x.double(), AXES)
    # a mean near 1e4 has a spacing of 2^-10 in float32; its error enters the variance squared
    close(found.mean.double(), exact.mean, rtol=0, atol=2.0**-10)
    close(found.var.double(), exact.var, rtol=1e-5, atol=2.0**-20)


@pytest.mark.parametrize("value", [0.0, 0.1, 12345.678, -6e4])
def test_equal_values_have_no_variance(value):
    x = torch.full((37, 3, 11), value, requires_grad=True)
    found = moments(x, AXES)
    assert not found.var.any()
    close(found.mean, torch.full((3,), value), rtol=0, atol=0)
    found.var.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_taken_in_float32(dtype):
    x = (draw(300, 3) * 100 + 2000).to(dtype)
    found, exact = moments(x, (0,)), moments(x.double(), (0,))
    assert found.mean.dtype == found.var.dtype == found.count.dtype == torch.float32
    close(found.mean.double(), exact.mean, rtol=1e-6, atol=0)
    close(found.var.double(), exact.var, rtol=1e-5, atol=0)  # its sum of squares lies beyond float16
    assert statistics.mean_over(x, (0,)).dtype == torch.float32


def test_double_stays_double():
    assert moments(draw(3, 2), (0,)).mean.dtype == torch.float64
    assert statistics.accurate(draw(3)).dtype == torch.float64


def test_the_root_has_no_slope_at_zero():
    x = torch.tensor([0.0, 4.0], dtype=torch.float64, requires_grad=True)
    y = statistics.root(x)
    close(y, torch.tensor([0.0, 2.0], dtype=torch.float64))
    y.sum().backward()
    close(x.grad, torch.tensor([0.0, 0.25], dtype=torch.float64))


# merging


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_merged_shards_are_the_joined_batch(offset, unbiased):
    shards = [draw(n, 3, seed=n) * n + offset + n for n in (4, 1, 7)]
    found = [moments(s, (0,)) for s in shards]
    mean, var = merge(*(torch.stack(part) for part in zip(*found, strict=True)), unbiased=unbiased)
    joined = torch.cat(shards)
    close(mean, joined.mean(0))
    close(var, joined.var(0, correction=int(unbiased)))


def test_counts_may_differ_by_channel():
    x, mask = draw(8, 3), draw(8, 3, seed=1) > 0
    found = [moments(x[part], (0,), mask=mask[part]) for part in (slice(0, 5), slice(5, 8))]
    mean, var = merge(*(torch.stack(part) for part in zip(*found, strict=True)))
    want = moments(x, (0,), mask=mask)
    close(mean, want.mean)
    close(var, want.var)


@pytest.mark.parametrize("poison", [7.0, float("nan"), float("inf")])
def test_an_empty_shard_drops_out_whatever_it_holds(poison):
    mean, var = draw(3, 2).requires_grad_(True), (draw(3, 2, seed=1) ** 2).requires_grad_(True)
    empty = torch.full((1, 2), poison, dtype=torch.float64)
    count = torch.tensor([2, 5, 3, 0])
    got = merge(torch.cat([mean, empty]), torch.cat([var, empty]), count)
    want = merge(mean.detach(), var.detach(), count[:3])
    close(got, want)
    sum(part.sum() for part in got).backward()
    assert torch.isfinite(mean.grad).all()
    assert torch.isfinite(var.grad).all()


def test_merging_nothing_or_one_value_gives_no_nan():
    zeros = torch.zeros(2, 3)
    assert all((part == 0).all() for part in merge(zeros, zeros, torch.tensor([0, 0])))
    mean, var = merge(zeros + 4, zeros, torch.tensor([1, 0]), unbiased=True)
    close(mean, torch.full((3,), 4.0))
    close(var, torch.zeros(3))


def test_half_precision_is_merged_in_float32():
    mean, var = draw(3, 2, dtype=torch.float16), draw(3, 2, seed=1, dtype=torch.float16).square()
    count = torch.tensor([70000, 1, 130000])  # more than float16 can count
    got = merge(mean, var, count)
    close(got, merge(mean.float(), var.float(), count))
    assert got[0].dtype == torch.float32


def test_merging_has_the_right_derivatives():
    count = torch.tensor([3, 0, 2])
    values = [draw(3, 2).requires_grad_(True), (draw(3, 2, seed=1) ** 2).requires_grad_(True)]
    assert torch.autograd.gradcheck(lambda m, v: merge(m, v, count, unbiased=True), values)


@pytest.mark.parametrize(
    ("var", "count", "named"),
    [
        (torch.ones(3, 2), torch.ones(3), "var"),
        (torch.ones(2, 4), torch.ones(1), "count"),
        (torch.ones(2, 4), torch.ones(2, 3), "count"),
    ],
)
def test_shapes_that_do_not_fit_are_named(var, count, named):
    with pytest.raises(ValueError, match=f"merge: {named} must have shape"):
        merge(torch.ones(2, 4), var, count)


# processes

SHARES = [(1, 4), (3, 0, 2)]


def task(x, mask, sync):
    """Normalize with all that is synchronized, and move running estimates."""
    found = moments(x, AXES, mask=mask, sync=sync)
    middle = statistics.mean_over(x.square(), AXES, mask=mask, sync=sync)
    y = (x - found.mean.view(-1, 1)) * (found.var.view(-1, 1) + 1e-3).rsqrt() * (1 + middle.view(-1, 1))
    running = torch.ones(3, dtype=x.dtype)
    track(running, found.unbiased(), 0.3)
    return y, running


def run_task(x, mask, sync):
    """Outputs, first and second derivative, running estimate."""
    x = x.clone().requires_grad_(True)
    y, running = task(x, mask, sync)
    (first,) = torch.autograd.grad((y.sin() * y).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return y.detach(), first.detach(), second, running


def shard_inputs(shares, masked, dtype=torch.float64):
    total = sum(shares)
    x = draw(total, 3, 4, dtype=dtype)
    return x, (draw(total, 1, 4, seed=1) > -0.5 if masked else None)


def work(shares):
    rank = torch.distributed.get_rank()
    mine = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
    results = {}
    for masked in (False, True):
        x, mask = shard_inputs(shares, masked)
        results[masked] = run_task(x[mine], mask if mask is None else mask[mine], sync=True)
    offset = draw(sum(shares), 3, 50, dtype=torch.float32) + 1e4
    results["offset"] = moments(offset[mine], AXES, sync=True)
    half = shard_inputs(shares, False, torch.bfloat16)[0]
    results["half"] = moments(half[mine], AXES, sync=True)
    alone = [torch.distributed.new_group([r]) for r in range(len(shares))][rank]
    results["alone"] = moments(half[mine], AXES, sync=True, group=alone)
    results["kind"] = type(results["half"].mean)
    results["place"] = statistics.place(half[mine])
    own = (torch.arange(2.0) + rank).requires_grad_(True)
    gathered = statistics.gather_over_processes(own)
    (gathered * (rank + 1)).sum().backward()
    results["gathered"] = gathered.detach(), own.grad
    return results


@pytest.fixture(scope="module", params=SHARES, ids=str)
def processes(request, tmp_path_factory):
    shares = request.param
    return shares, over_processes(work, len(shares), tmp_path_factory.mktemp("processes"), shares)


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_unequal_processes_equal_one(processes, masked):
    shares, results = processes
    x, mask = shard_inputs(shares, masked)
    y, first, second, running = run_task(x, mask, sync=False)
    close(torch.cat([r[masked][0] for r in results]), y)
    close(torch.cat([r[masked][1] for r in results]), first)
    close(torch.cat([r[masked][2] for r in results]), second)
    for result in results:
        close(result[masked][3], running)


def test_processes_keep_the_variance_at_an_offset(processes):
    shares, results = processes
    exact = moments((draw(sum(shares), 3, 50, dtype=torch.float32) + 1e4).double(), AXES)
    for result in results:
        close(result["offset"].var.double(), exact.var, rtol=1e-5, atol=2.0**-20)
        assert result["offset"].count == exact.count


def test_processes_agree_to_the_bit_and_give_plain_tensors(processes):
    shares, results = processes
    exact = moments(shard_inputs(shares, False, torch.bfloat16)[0], AXES)
    for result in results:
        close(result["half"].mean, results[0]["half"].mean, rtol=0, atol=0)
        close(result["half"].var, results[0]["half"].var, rtol=0, atol=0)
        close(result["half"].var, exact.var)
        assert result["kind"] is torch.Tensor


def test_a_group_of_one_is_one_process(processes):
    shares, results = processes
    x = shard_inputs(shares, False, torch.bfloat16)[0]
    for rank, result in enumerate(results):
        close(result["alone"].mean, moments(x[sum(shares[:rank]) : sum(shares[: rank + 1])], AXES).mean)


def test_processes_know_their_place_and_gather(processes):
    shares, results = processes
    for rank, result in enumerate(results):
        assert result["place"] == (sum(shares[:rank]), sum(shares))
        gathered, gradient = result["gathered"]
        close(gathered, torch.stack([torch.arange(2.0) + r for r in range(len(shares))]))
        close(gradient, torch.full((2,), sum(r + 1.0 for r in range(len(shares)))))


def test_without_torch_distributed_sync_changes_nothing():
    x = draw(4, 3, 2)
    close(moments(x, AXES, sync=True), moments(x, AXES))


# running estimates


class Tracked(nn.Module):
    """Reads nothing that it moves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        found = moments(x, (0,))
        track(self.running, found.mean, 0.25)
        return (x - found.mean).sin()


class Read(nn.Module):
    """Reads the estimate before and after moving it, and counts."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.ones(3, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, fail=False):
        with once(self, x):
            old = self.running.clone()
            self.calls += 1
            self.running.mul_(0.5).add_(x.detach().square().mean(0))
            if fail:
                raise RuntimeError("on purpose")
            return x.sin() * old + x / self.running.clone()


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved", "reentrant"])
@pytest.mark.parametrize("kind", [Tracked, Read])
def test_a_recomputed_pass_counts_once(kind, reentrant):
    plain, checked = kind(), kind()
    for seed in range(3):
        a, b = (draw(5, 3, seed=seed).requires_grad_(True) for _ in range(2))
        plain(a).square().sum().backward()
        checkpoint(checked, b, use_reentrant=reentrant).square().sum().backward()
        close(b.grad, a.grad, rtol=0, atol=0)
        close(dict(checked.named_buffers()), dict(plain.named_buffers()), rtol=0, atol=0)


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved", "reentrant"])
@pytest.mark.parametrize("backward", [[(0, 1, 2)], [(0,), (1,), (2,)], [(2,), (0, 1)]], ids=str)
def test_a_recomputed_pass_is_that_of_the_same_call(backward, reentrant):
    """Inputs that are normalized differ in their sums, and those of one sum in their length."""

    def gradients(module):
        inputs = [F.normalize(draw(5, 3)), F.normalize(draw(5, 3, seed=1)), draw(5, 3)]
        inputs[2] = inputs[2] - inputs[2].mean() + inputs[1].mean()
        inputs = [x.requires_grad_(True) for x in inputs]
        results = [module(x).square().sum() for x in inputs]
        for together in backward:
            sum(results[i] for i in together).backward()
        return [x.grad for x in inputs]

    plain, checked = Read(), Read()
    got = gradients(functools.partial(checkpoint, checked, use_reentrant=reentrant))
    close(got, gradients(plain), rtol=0, atol=0)
    close(dict(checked.named_buffers()), dict(plain.named_buffers()), rtol=0, atol=0)


def test_calls_without_a_backward_pass_do_not_pile_up():
    module = Read()
    for seed in range(40):
        module(draw(5, 3, seed=seed))
    size = len(pickle.dumps(module))
    module(draw(5, 3))
    assert len(pickle.dumps(module)) <= size + 100


def test_nested_checkpoints_count_once():
    plain, checked = Read(), Read()
    a, b = (draw(5, 3).requires_grad_(True) for _ in range(2))
    plain(a).square().sum().backward()
    inner = functools.partial(checkpoint, checked, use_reentrant=False)
    checkpoint(inner, b, use_reentrant=False).square().sum().backward()
    close(b.grad, a.grad, rtol=0, atol=0)
    close(dict(checked.named_buffers()), dict(plain.named_buffers()), rtol=0, atol=0)


def test_a_failed_pass_leaves_the_state():
    module = Read()
    module(draw(5, 3))
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with pytest.raises(RuntimeError, match="on purpose"):
        module(draw(5, 3, seed=1), fail=True)
    close(dict(module.named_buffers()), before, rtol=0, atol=0)


def test_a_forward_pass_after_a_backward_pass_is_no_recomputation():
    assert not recomputing()
    x = draw(2, 3).requires_grad_(True)
    seen = []
    x.register_hook(lambda grad: seen.append(recomputing()))
    x.sum().backward()
    assert seen == [True]
    assert not recomputing()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rate", [0.1, 0.9, torch.tensor(0.1), 1 / torch.tensor(10)], ids=str)
def test_track_moves_by_the_rate_in_every_dtype(rate, dtype):
    running = torch.tensor([1.0, -2.0], dtype=dtype)
    track(running, torch.tensor([3.0, 5.0]), rate)
    exact = torch.tensor([1.0, -2.0]) + float(rate) * torch.tensor([2.0, 7.0])
    close(running, exact.to(dtype))


def test_track_takes_no_part_in_the_graph():
    running, value = torch.zeros(3), torch.ones(3, requires_grad=True)
    track(running, value * 2, 0.5)
    assert not running.requires_grad
    close(running, torch.ones(3))


def test_averaging_gives_plain_averages_and_ends():
    values = [draw(3, seed=s) for s in range(4)]
    first, second = torch.full((3,), 9.0, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    with averaging():
        for value in values:
            track(first, value, 0.1)
            track(first, value + 100, torch.tensor(0.0))  # an empty batch moves nothing
            track(second, value.square(), torch.tensor(0.5))
    close(first, torch.stack(values).mean(0))
    close(second, torch.stack(values).square().mean(0))
    track(first, first + 1, 0.5)
    close(first, torch.stack(values).mean(0) + 0.5)


def test_averaging_ends_with_an_error():
    running = torch.zeros(1)
    with pytest.raises(KeyError), averaging():
        raise KeyError
    track(running, torch.ones(1), 0.5)
    close(running, torch.full((1,), 0.5))


def test_averaging_in_one_thread_leaves_estimates_of_another_alone():
    running, begun, done = torch.zeros(2, 1), threading.Event(), threading.Event()

    def average():
        with averaging():
            for value in (2.0, 4.0):
                track(running[1], torch.tensor([value]), 0.5)
            begun.set()
            assert done.wait(60)

    thread = threading.Thread(target=average)
    thread.start()
    assert begun.wait(60)
    track(running[0], torch.ones(1), 0.5)
    here = is_averaging(running[0])
    done.set()
    thread.join()
    assert not here
    close(running, torch.tensor([[0.5], [3.0]]))


def test_averaging_reaches_a_compiled_module():
    plain, compiled = Tracked(), torch.compile(Tracked(), backend="aot_eager")
    compiled(draw(4, 3))
    with averaging():
        for seed in range(3):
            plain(draw(4, 3, seed=seed))
            compiled(draw(4, 3, seed=seed))
    close(compiled.running, plain.running)


@pytest.mark.parametrize("kind", [averaging, uncompiled])
def test_what_ends_in_another_order_than_it_began_lets_the_compiler_go_on(kind):
    """As two threads do whose calls overlap."""
    graphs = []
    double = torch.compile(lambda x: x * 2, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    first, second = ExitStack(), ExitStack()
    first.enter_context(kind()), second.enter_context(kind())
    first.close()
    double(torch.ones(3))
    assert not graphs
    second.close()
    try:
        double(torch.ones(3))
        assert graphs
    finally:
        torch.compiler.set_stance("default")
