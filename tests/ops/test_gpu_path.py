"""The way of an op to a launch, with a driver that writes launches down: nothing waits, and what is bad is named."""

import contextlib

import pytest
import torch

from gpu_device import Device
from normkit import ops
from normkit.kernels import cuda
from normkit.ops import gpu, paths, trial

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


class Devices(Device):
    """Several devices, of which one is the current one, with a stream each."""

    def __init__(self):
        super().__init__()
        self.current, self.entered, self.streams = 0, [], {None: 5, 0: 7, 1: 9}

    def get_current_device(self):
        return self.current

    def get_current_stream(self, device):
        return self.streams[device]

    @contextlib.contextmanager
    def device(self, index):
        self.entered.append(index)
        before, self.current = self.current, index
        yield
        self.current = before


@pytest.fixture
def devices(monkeypatch):
    from triton.runtime import driver

    from normkit.kernels.cuda import launch

    made = Devices()
    monkeypatch.setattr(driver, "_active", made)
    monkeypatch.setattr(launch, "_binaries", {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "device", made.device)
    return made


def on(index):
    """A type of tensors that say they are on a GPU."""
    return type("On", (torch.Tensor,), {"device": torch.device("cuda", index), "is_cuda": True})


def launched_for(x, engine, rule):
    plan, stats = rule.plan(x.shape[1], x, None, None), torch.empty(len(x))
    engine.row_forward(plan, len(x), x, None, None, None, None, torch.empty(x.shape), stats)


def test_a_launch_goes_to_the_device_of_its_tensors_and_to_the_stream_that_is_current_there(devices):
    from normkit.kernels.cuda.engine import Engine

    engine, rule = Engine(False), ops.Row()
    first, second = (torch.randn(4, 32).as_subclass(on(index)) for index in (0, 1))
    for x in (first, second, first, second):
        launched_for(x, engine, rule)
    assert [launch[2] for launch in devices.launched] == [7, 9, 7, 9]
    assert devices.entered == [1, 1], "the other GPU becomes the current one for its launches alone"
    devices.streams = {0: 11, 1: 9}
    launched_for(first, engine, rule)
    assert devices.launched[-1][2] == 11


WAITS = ["item", "tolist", "cpu", "numpy", "nonzero", "new_tensor", "__bool__", "__int__", "__float__", "__index__"]
CALLS = {
    "rows": lambda x, w: ops.rms_norm(x, x.shape[-1:], w),
    "centred": lambda x, w: ops.layer_norm(x, x.shape[-1:], w, w),
    "addition": lambda x, w: ops.add_rms_norm(x, x * 2, w)[0],
    "points": lambda x, w: ops.dyt(x, w[:1], w, w),
    "turned": lambda x, w: ops.norm_rotate(x, w, None, (torch.ones(32, 4), torch.zeros(32, 4)), rule=ops.Row()),
    "batch": lambda x, w: ops.batch_norm(x.view(16, 8, 16), w, w)[0],
    "group": lambda x, w: ops.group_norm(x.view(16, 8, 16), 2, w, w),
    "threshold": lambda x, w: ops.filter_response_norm(x.view(16, 8, 16), w, w, w, eps=w[:1]),
    "vectors": lambda x, w: ops.layer_norm2d(x.view(16, 8, 16), w, w),
    "given": lambda x, w: ops.normalize_with(x.view(16, 8, 16), torch.zeros(8), torch.ones(8), w),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_one_node_of_autograd_and_nothing_on_its_way_waits_for_the_gpu(name, devices, monkeypatch):
    from normkit.kernels.cuda.engine import Engine

    monkeypatch.setattr(cuda, "library", lambda interpreted: engine)
    engine = Engine(False)
    x, w = torch.randn(8, 32, 8).requires_grad_(), torch.rand(8).requires_grad_()
    grad = torch.ones(8 * 32 * 8)
    with paths.interpreted(), paths.watch() as taken:
        for wait in WAITS:
            monkeypatch.setattr(torch.Tensor, wait, lambda tensor, *rest, wait=wait: pytest.fail(f"{wait} waits"))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: pytest.fail("synchronize waits"))
        y = CALLS[name](x, w)
        forward = len(devices.launched)
        y.backward(grad.view(y.shape))
    monkeypatch.undo()
    assert [path.why for path in taken] == [None] * 2
    assert y.grad_fn.name().startswith("_"), "a Function of this library, and none around it"
    assert 1 <= forward < len(devices.launched) <= 7


def refused(x, *others):
    with paths.interpreted(), paths.watch() as taken:
        why = gpu.refusal(x, *others)
    assert not taken
    return why


def test_without_triton_or_with_an_old_one_the_reason_says_what_to_do(monkeypatch):
    cuda.absent.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
            assert refused(torch.ones(2, 4)) == "Triton is not installed: pip install 'normkit[triton]'"
        cuda.absent.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(cuda.importlib.metadata, "version", lambda name: "3.1.0")
            with paths.interpreted(), paths.watch() as taken:
                y = ops.rms_norm(torch.ones(2, 4), (4,))
            assert str(taken[0]) == "formula: Triton 3.1.0 is too old for the GPU kernels: 3.4 is the oldest"
            assert torch.allclose(y, torch.ones(2, 4))
    finally:
        cuda.absent.cache_clear()


@pytest.mark.parametrize(
    "have, why",
    [
        ((7, 5), "a GPU of compute capability 7.5 is too old for the Triton kernels: 8.0 is the oldest"),
        ((8, 0), None),
        ((12, 0), None),
    ],
)
def test_a_card_of_before_ampere_is_named(have, why, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: have)
    cuda.against.cache_clear()
    try:
        assert cuda.against(0) == why
    finally:
        cuda.against.cache_clear()


def test_tensors_on_two_devices_are_an_error_that_names_both():
    x, elsewhere = torch.ones(2, 4), torch.ones(4, device="meta")
    assert refused(x, elsewhere) == "the tensors are on cpu and meta"
    with paths.interpreted(), pytest.raises(ValueError, match="x is on cpu, but a tensor that it meets is on meta"):
        ops.rms_norm(x, (4,), elsewhere)


def test_a_view_that_is_not_aligned_is_compiled_for_and_right():
    whole = torch.randn(7 * 24 + 1, generator=torch.Generator().manual_seed(0))
    x = whole[1:].view(7, 24)
    assert x.data_ptr() % 16
    with paths.interpreted(), paths.watch() as taken:
        y = ops.rms_norm(x, (24,))
    assert taken[0].why is None
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (24,), eps=1e-6))


def test_what_was_not_tried_before_a_cuda_graph_is_not_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(trial, "_verdicts", {})
    x = torch.ones(2, 4).as_subclass(on(0))
    assert "run it once beforehand" in trial.verdict("row_norm", (ops.Row(),), (x,))
    assert not trial._verdicts
