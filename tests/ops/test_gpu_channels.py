"""The GPU's kernels for channels, run by Triton's interpreter, on tiles so small that each call has many pieces."""

import math
import threading

import pytest
import torch

import normkit as nk
from channel_calls import OPERATIONS, draw, run
from normkit import ops, running
from normkit.kernels import cuda
from normkit.ops import channel, paths
from place import DEVICE, KERNEL, forget_plans, kernels

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
FORMATS = pytest.mark.parametrize("last", [False, True], ids=["first", "last"])


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch):
    """Tiles of 64 entries or of 4 channels, three of them a program."""
    from normkit.kernels.cuda import settings

    for name in ("TILE", "LINE", "LAST", "POSITIONS"):
        monkeypatch.setattr(settings, name, 64)
    monkeypatch.setattr(settings, "CHANNELS", 4)
    monkeypatch.setattr(settings, "FILLING", 1)
    monkeypatch.setattr(settings, "FILLING_LAST", 1)
    monkeypatch.setattr(settings, "WHOLE", 0)
    monkeypatch.setattr(settings, "MOST_STEPS", 3)
    forget_plans()
    with kernels():
        yield
    forget_plans()


def by_kernel(*arguments):
    with paths.watch() as taken:
        found = run(*arguments)
    assert {str(path) for path in taken} == {KERNEL}
    return found


def in_float64(operation, x, parameters, grad):
    with paths.formula_only():
        return run(operation, x.double(), [p.double() for p in parameters], grad.double())


def assert_right(name, x, parameters, grad, unit=1e-5):
    operation, _ = OPERATIONS[name]
    for a, b in zip(by_kernel(operation, x, parameters, grad), in_float64(operation, x, parameters, grad), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=unit, atol=unit * b.abs().max().item())


def drawn(name, shape, last, dtype=torch.float32, seed=0):
    x, parameters, grad = draw(shape, OPERATIONS[name][1], dtype, last, seed)
    return x.to(DEVICE), [p.to(DEVICE, torch.float32) for p in parameters], grad.to(DEVICE)


@pytest.mark.usefixtures("within")
@FORMATS
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_op_forward_and_backward(name, last):
    assert_right(name, *drawn(name, (2, 6, 7, 3), last))


@FORMATS
@pytest.mark.parametrize("name", ["batch", "group", "layer2d"])
def test_an_offset_costs_no_digits(name, last):
    x, parameters, grad = drawn(name, (2, 3, 17, 3), last)
    assert_right(name, x + 1e4, parameters, grad)


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("shape", [(1, 3, 1), (7, 3), (1, 3, 400), (2, 3, 2, 2, 3)], ids=str)
@pytest.mark.parametrize("name", ["batch", "share", "swish"])
def test_edges_of_shape(name, shape):
    assert_right(name, *drawn(name, shape, False), unit=1e-4)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["batch", "group", "learned", "swish"])
def test_half_precision_is_rounded_once(name, kind):
    x, parameters, grad = drawn(name, (2, 6, 4, 5), True, kind)
    y, dx, *rest = by_kernel(OPERATIONS[name][0], x, parameters, grad)
    want, dwant, *others = in_float64(OPERATIONS[name][0], x, parameters, grad)
    half = torch.finfo(kind).eps / 2
    assert ((y.double() - want).abs() <= 1.01 * half * want.abs() + 1e-6).all()
    assert ((dx.double() - dwant).abs() <= 1.01 * half * dwant.abs() + 1e-5).all()
    for a, b in zip(rest, others, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * b.abs().max().item())


@FORMATS
def test_the_same_bits_each_time(last):
    arguments = OPERATIONS["group"][0], *drawn("group", (2, 3, 17, 3), last)
    for a, b in zip(by_kernel(*arguments), by_kernel(*arguments), strict=True):
        assert torch.equal(a, b)


@FORMATS
@pytest.mark.parametrize("value", [math.nan, 1e30])
@pytest.mark.parametrize("name", ["batch", "group", "instance", "share", "threshold", "swish"])
def test_a_bad_value_spoils_what_it_spoils_in_the_formula(name, last, value):
    x, parameters, grad = drawn(name, (2, 3, 5, 3), last)
    x[1, 2, 3, 1] = value
    found = by_kernel(OPERATIONS[name][0], x, parameters, grad)
    with paths.formula_only():
        wanted = run(OPERATIONS[name][0], x, parameters, grad)
    assert torch.equal(found[0].isfinite(), wanted[0].isfinite())
    assert torch.equal(found[1].isfinite(), wanted[1].isfinite())


def test_moments_are_reported_and_carry_no_gradient():
    x = (torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(0)) + 1e4).to(DEVICE).requires_grad_()
    _, found = ops.batch_norm(x)
    values = x.detach().double().movedim(1, 0).flatten(1)
    torch.testing.assert_close(found.mean.double(), values.mean(1), rtol=1e-7, atol=0)
    torch.testing.assert_close(found.var.double(), values.var(1, correction=0), rtol=1e-6, atol=0)
    assert not found.mean.requires_grad


@FORMATS
@pytest.mark.parametrize("unbiased, by", [(True, 59 / 60), (False, 1.0)])
def test_running_moments_move_in_the_kernel(monkeypatch, last, unbiased, by):
    x = draw_images("last" if last else "first").to(DEVICE)
    norm = nk.BatchNorm(6, momentum=0.3, unbiased=unbiased).to(DEVICE)
    before = norm.running_var._version
    monkeypatch.setattr(channel, "FEW", 0)
    monkeypatch.setattr(channel, "FEW_LAST", 0)
    with monkeypatch.context() as alone:
        alone.setattr(running.Step, "move", None)
        for _ in range(2):
            norm(x)
    exact = x.double().transpose(0, 1).flatten(1)
    left = 0.7**2  # of where they began
    close(norm.running_mean, (1 - left) * exact.mean(1))
    close(norm.running_var, left + (1 - left) * exact.var(1, correction=0) / by)
    assert norm.num_batches_tracked == 2
    assert norm.running_var._version == before + 2, "a backward pass that needs them is to notice"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("order", ["first", "last", "other"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_torchs_batch_norm_takes_what_is_small_for_a_gpu(monkeypatch, training, order, kind):
    x = draw_images(order).to(DEVICE, kind)
    norms, results = [nk.BatchNorm(6, momentum=0.3).to(DEVICE).train(training) for _ in range(2)], []
    for norm, few in zip(norms, (2**20, 0), strict=True):
        monkeypatch.setattr(channel, "FEW_LAST" if order == "last" else "FEW", few)
        own = x.clone(memory_format=torch.preserve_format).requires_grad_()
        with paths.watch() as taken:
            y = norm(own)
        assert order == "other" or y.stride() == x.stride()
        y.backward(x.cos())
        assert (taken[0].by == "torch's own") == (few > 0 and order != "other")
        results.append([y, own.grad, *(p.grad for p in norm.parameters()), *norm.buffers()])
    for a, b in zip(*results, strict=True):
        unit = 8 * torch.finfo(kind).eps
        torch.testing.assert_close(a.float(), b.float(), rtol=unit, atol=unit * b.abs().max().item())


def draw_images(order):
    x = torch.randn(5, 6, 4, 3, generator=torch.Generator().manual_seed(0)) * 2 + 3
    if order == "other":
        return x.transpose(2, 3)
    return x.to(memory_format=torch.channels_last) if order == "last" else x


def test_networks_side_by_side_take_no_single_call():
    norms = [nk.BatchNorm(6).to(DEVICE) for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(norms)
    x = draw_images("first").to(DEVICE)
    call = lambda p, b: torch.func.functional_call(norms[0], (p, b), (x,))  # noqa: E731
    with paths.watch() as taken:
        y = torch.func.vmap(call)(parameters, buffers)
    assert [path.by for path in taken] == ["formula"]
    torch.testing.assert_close(y[1], norms[1](x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(buffers["running_var"][1], norms[1].running_var)


def test_a_batch_norm_of_many_entries_or_of_another_rule_is_the_kernels(monkeypatch):
    x = draw_images("first").to(DEVICE)
    monkeypatch.setattr(channel, "FEW", x.numel())
    with paths.watch() as taken:
        nk.BatchNorm(6).to(DEVICE)(x)
        nk.BatchNorm(6).to(DEVICE)(x[1:])
        nk.BatchNorm(6, unbiased=False).to(DEVICE)(x[1:])
        nk.BatchNorm(6).to(DEVICE, torch.bfloat16)(x[1:].bfloat16())
        mixed = nk.BatchNorm(6).to(DEVICE)
        for parameter in mixed.parameters():
            parameter.data = parameter.data.bfloat16()
        mixed(x[1:].bfloat16())
    assert [path.by for path in taken] == [KERNEL, "torch's own", KERNEL, KERNEL, KERNEL]


def close(got, want):
    torch.testing.assert_close(got, want.float(), rtol=2e-6, atol=1e-7)


def test_a_gpu_is_not_asked_for_a_learned_eps(monkeypatch):
    """`float` of it would make the host wait, and cannot be done in a CUDA graph."""
    monkeypatch.setattr(torch.Tensor, "__float__", lambda tensor: pytest.fail("the host asked"))
    x, parameters, grad = drawn("learned", (2, 6, 5), False)
    by_kernel(OPERATIONS["learned"][0], x, parameters, grad)


def test_second_derivatives_are_those_of_the_formula():
    def twice(x):
        [first] = torch.autograd.grad(ops.group_norm(x, 2).square().sin().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    want = twice(x.double().requires_grad_())
    torch.testing.assert_close(twice(x.requires_grad_()).double(), want, rtol=1e-4, atol=1e-5)


def test_pieces_fill_a_gpu_and_are_no_more_than_need_be(monkeypatch):
    monkeypatch.undo()
    from normkit.kernels.cuda import settings

    few = settings.channels(1, 32, 2**20, False, 132)  # 32 planes, of a million
    assert 7 * 132 <= 32 // few.rows * few.pieces <= 9 * 132
    assert few.pieces * few.steps * few.block >= 2**20
    many = settings.channels(64, 512, 49, False, 132)
    assert (many.pieces, many.steps, many.rows * many.block) == (1, 1, 1024)
    rows = settings.channels(1, 256, 100352, True, 132)
    assert rows.steps <= settings.MOST_STEPS
    assert rows.pieces * rows.steps * rows.rows >= 100352


class Together:
    """Threads that stand for processes: a sum waits for all of them."""

    def __init__(self, number):
        self.number, self.barrier, self.sent = number, threading.Barrier(number, timeout=60), {}

    def add_up(self, x, group):
        self.sent[threading.get_ident()] = x.detach()
        self.barrier.wait()
        shapes = {(tuple(t.shape), t.dtype) for t in self.sent.values()}
        total = sum(self.sent[key] for key in sorted(self.sent))
        self.barrier.wait()
        assert len(shapes) == 1, shapes
        return total


@pytest.mark.parametrize("second", ["kernel", "formula"])
def test_processes_are_normalized_together_whoever_of_them_takes_the_formula(second, monkeypatch):
    from normkit import statistics

    together = Together(2)
    monkeypatch.setattr(statistics, "_all_reduce", together.add_up)
    monkeypatch.setattr(statistics, "processes", lambda group=None: 2)
    monkeypatch.setattr("normkit.ops.channel.processes", lambda group=None: 2)
    x, (weight, bias), grad = drawn("batch", (5, 3, 9), False)
    x += 100
    parts, found = [(slice(0, 2), True), (slice(2, 5), second == "kernel")], {}

    def one(part, by_kernel):
        inner = [x[part].clone().requires_grad_(), weight.clone().requires_grad_(), bias.clone().requires_grad_()]
        with kernels() if by_kernel else paths.formula_only(), paths.watch() as taken:
            y, moments = ops.batch_norm(*inner, sync=True)
            y.backward(grad[part])
        assert all((path.by == "formula") != by_kernel for path in taken), taken
        found[part.start] = [y.detach(), *(t.grad for t in inner), *moments]

    threads = [threading.Thread(target=one, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    wanted = in_float64(OPERATIONS["batch"][0], x, [weight, bias], grad)
    one, other = found[0], found[2]
    joined = [torch.cat([one[0], other[0]]), torch.cat([one[1], other[1]]), one[2] + other[2], one[3] + other[3]]
    for a, b in zip(joined, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=2e-5 * b.abs().max().item())
    whole = x.double().movedim(1, 0).flatten(1)
    for mean, var, count in (one[4:], other[4:]):
        assert count == 45
        torch.testing.assert_close(mean.double(), whole.mean(1), rtol=1e-6, atol=0)
        torch.testing.assert_close(var.double(), whole.var(1, correction=0), rtol=1e-5, atol=0)
