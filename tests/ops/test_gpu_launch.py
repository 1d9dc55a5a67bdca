"""The way of a call through Triton's dispatch and compiler, on a driver that stands for a GPU and records launches."""

import contextlib

import pytest
import torch

from normkit import ops
from normkit.kernels import cuda
from normkit.ops.row import statistics

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


class Device:
    """What Triton asks of a driver; a binary is loaded and started by being written down."""

    def __init__(self):
        self.launched = []
        self.utils = self

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 7

    def get_device_properties(self, device):
        return {"max_shared_mem": 232448}

    def load_binary(self, name, binary, shared, device):
        return name, name, 32, 0, 1024

    def launcher_cls(self, source, metadata):
        def start(x, y, z, stream, function, packed, about, enter, leave, *arguments):
            self.launched.append((function, (x, y, z), stream, metadata.num_warps, arguments))

        return start


@pytest.fixture
def device(monkeypatch):
    from triton.runtime import driver

    from normkit.kernels.cuda import launch

    made = Device()
    monkeypatch.setattr(driver, "_active", made)
    monkeypatch.setattr(launch, "_beside", lambda index: contextlib.nullcontext())
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
    assert names == ["forward", "forward", "backward"]
    _, grid, stream, warps, arguments = device.launched[0]
    assert (grid, stream, warps) == ((1, 1, 1), 7, 4)
    assert arguments[0] is x
    assert arguments[2] is w
    assert arguments[5] is y
    assert arguments[1] is arguments[3] is arguments[4] is None
    assert arguments[7:10] == (5, dim, dim)
