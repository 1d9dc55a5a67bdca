"""Where a GPU has no Triton, torch's own function runs if it computes the same; forced here on CPU tensors."""

import pytest
import torch

from normkit import ops
from normkit.kernels import cuda
from normkit.ops import gpu, paths

WHY = "Triton is not installed"


@pytest.fixture(autouse=True)
def on_a_gpu_without_triton(monkeypatch):
    monkeypatch.setattr(cuda, "absent", lambda: WHY)
    monkeypatch.setattr(gpu, "lacking", lambda x: True)
    with paths.interpreted():  # else the C kernels would take them
        yield


X = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
GAIN, SHIFT = torch.linspace(0.5, 2, 6), torch.linspace(-1, 1, 6)
SAME = {
    "layer": lambda x: ops.layer_norm(x, (5,), GAIN[:5].to(x.dtype), SHIFT[:5].to(x.dtype)),
    "two axes": lambda x: ops.layer_norm(x, (6, 5)),
    "rms": lambda x: ops.rms_norm(x, (5,), GAIN[:5].to(x.dtype), 1e-3),
    "group": lambda x: ops.group_norm(x, 3, GAIN.to(x.dtype), SHIFT.to(x.dtype)),
    "batch": lambda x: ops.batch_norm(x, GAIN, SHIFT)[0],
    "batch's variance": lambda x: ops.batch_norm(x)[1].var + 0 * x.sum(),
}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SAME)
def test_it_computes_what_the_formula_does(name, kind):
    found = []
    for forced in (False, True):
        x = X.clone().to(kind).requires_grad_()
        with paths.watch() as taken, paths.formula_only() if forced else paths.watch():
            y = SAME[name](x)
        y.backward(torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype))
        assert str(taken[0]) == ("formula: it is asked for" if forced else f"torch's own: {WHY}")
        found.append((y.detach(), x.grad))
    for a, b in zip(*found, strict=True):
        unit = 16 * torch.finfo(kind).eps  # on a CPU torch keeps its moments in the type of x
        torch.testing.assert_close(a, b, rtol=unit, atol=unit * b.abs().max().item())


OTHER = {
    "gain of another type": lambda: ops.rms_norm(X.bfloat16(), (5,), GAIN[:5]),
    "gain of one number": lambda: ops.rms_norm(X, (5,), torch.ones(1)),
    "offset": lambda: ops.row_norm(X, GAIN[:5], None, ops.Row(offset=1.0)),
    "early": lambda: ops.row_norm(X, GAIN[:5], None, ops.Row(cast="early")),
    "outside": lambda: ops.row_norm(X, None, None, ops.Row(eps_place="outside")),
    "scale": lambda: ops.row_norm(X, None, None, ops.Row(scale=2.0)),
    "absolute": lambda: ops.row_norm(X, None, None, ops.Row(center=True, statistic="absolute")),
    "rms with a shift": lambda: ops.row_norm(X, GAIN[:5], SHIFT[:5]),
    "channels last": lambda: ops.group_norm(X.transpose(1, 2).contiguous().transpose(1, 2), 3),
    "one value a channel": lambda: ops.batch_norm(X[:1, :, :1]),
    "instances": lambda: ops.instance_norm(X),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_torch_computes_in_another_way_the_formula_does(name):
    with paths.watch() as taken:
        OTHER[name]()
    assert str(taken[0]) == f"formula: {WHY}"


def test_kernels_that_are_turned_off_are_not_lacking(monkeypatch):
    monkeypatch.undo()
    assert not gpu.lacking(X)
    seen = type("Seen", (), {"is_cuda": True, "device": torch.device("cuda", 0)})()
    monkeypatch.setattr(cuda, "against", lambda device: WHY)
    assert gpu.lacking(seen)
    monkeypatch.setenv("NORMKIT_KERNELS", "off")
    assert not gpu.lacking(seen)
