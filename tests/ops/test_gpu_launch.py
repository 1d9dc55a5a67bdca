"""The way of a call through Triton's dispatch and compiler, on a driver that stands for a GPU and records launches."""

import pytest
import torch

from gpu_device import Device
from normkit import ops
from normkit.kernels import cuda
from normkit.ops.row import statistics

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


@pytest.fixture
def device(monkeypatch):
    from triton.runtime import driver

    from normkit.kernels.cuda import launch

    made = Device()
    monkeypatch.setattr(driver, "_active", made)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # as a CPU's tensors have it
    monkeypatch.setattr(launch, "_binaries", {})
    return made


def test_a_forward_and_a_backward_pass_are_compiled_and_launched_once_each(device):
    from normkit.kernels.cuda.engine import Engine

    engine, rule, dim = Engine(False), ops.Row(), 48
    x, w = torch.randn(5, dim), torch.randn(dim)
    plan, stats, y = rule.plan(dim, x, w, None), statistics(x, rule, dim), torch.empty_like(x)
    engine.row_forward(plan, 5, x, None, w, None, None, y, stats)
    engine.row_forward(plan, 5, x, None, w, None, None, y, stats)
    engine.row_backward(plan, 5, x, x, None, w, stats, y, torch.empty_like(w), None)
    names = [launched[0] for launched in device.launched]
    assert names == ["forward", "forward", "backward", "add_up_programs"]
    _, grid, stream, warps, arguments = device.launched[0]
    assert (grid, stream, warps) == ((1, 1, 1), 7, 1)
    assert arguments[0] is x
    assert arguments[2] is w
    assert arguments[5] is y
    assert arguments[1] is arguments[3] is arguments[4] is None
    assert arguments[7:10] == (5, dim, dim)


def test_the_second_launch_goes_past_the_dispatch_with_the_same_arguments(device, monkeypatch):
    from triton import knobs
    from triton.runtime.jit import JITFunction

    from normkit.kernels.cuda.engine import Engine

    engine, rule, dim = Engine(False), ops.Row(center=True), 48
    x, w = torch.randn(6, dim), torch.randn(dim)
    plan, stats, y = rule.plan(dim, x, w, None), statistics(x, rule, dim), torch.empty_like(x)
    calls, dispatch = [], JITFunction.run
    monkeypatch.setattr(JITFunction, "run", lambda *a, **k: calls.append(a) or dispatch(*a, **k))
    engine.row_forward(plan, 6, x, None, w, None, None, y, stats)
    engine.row_forward(plan, 5, x, None, w, None, None, y, stats)
    assert len(calls) == 1
    (first, second) = (launched[1:4] for launched in device.launched)
    assert first == second
    one, other = (launched[4] for launched in device.launched)
    assert len(one) == len(other)
    differ = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a is not b and a != b]
    assert [(one[i], other[i]) for i in differ] == [(6, 5)], "the rows alone"
    shifted = torch.randn(6 * dim + 1)[1:].view(6, dim)
    engine.row_forward(plan, 6, shifted, None, w, None, None, y, stats)
    assert len(calls) == 2, "memory that is not aligned is another kind"
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda about: None)
    engine.row_forward(plan, 6, x, None, w, None, None, y, stats)
    assert len(calls) == 3, "who listens to launches hears of all"


def test_channels_are_launched_one_kernel_after_another(device, monkeypatch):
    from normkit.kernels.cuda import channels
    from normkit.kernels.cuda.engine import Engine
    from normkit.ops import channel

    monkeypatch.setattr(channels, "processors", lambda x: 132)
    x, w = torch.randn(4, 8, 32), torch.randn(8)
    rule = channel.Rule("batch_norm", channel._batch_formula, channel.DEVIATION, over_samples=True, eps=1e-5)
    plan, samples, kept = channel._plan(rule, x, (w, None, None), None)
    both = torch.zeros(kept, dtype=torch.float64)
    Engine(False).channel_forward(plan, samples, x, w, None, None, both, None, torch.empty_like(x))
    assert [launched[0] for launched in device.launched] == ["measure", "join", "write"]


def test_memory_that_is_not_aligned_has_a_kernel_of_its_own():
    from normkit.kernels.cuda import launch

    whole = torch.zeros(9)
    start = -whole.data_ptr() % 16 // 4  # the first number that is aligned
    assert launch._kind(whole[start:]) == (torch.float32, True)
    assert launch._kind(whole[start + 1 :]) == (torch.float32, False)
