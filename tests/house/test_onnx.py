"""The evaluated methods of the activation room in ONNX: the same numbers from onnxruntime, for any batch size."""

import pytest
import torch

import normkit as nk
from normkit.kinds.kind import layouts
from onnx_sessions import session


def build(card):
    """A small module in evaluation, its parameters moved off their initial values."""
    torch.manual_seed(0)
    module = card.small().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.rand_like(parameter))
    return module


@pytest.mark.line("onnx")
@pytest.mark.filterwarnings("ignore")  # the exporter's own, about itself
@pytest.mark.parametrize("name", nk.methods(room="activation"))
def test_gives_the_same_numbers(name):
    card = nk.card(name)
    module, axes = build(card), [layout.samples for layout in layouts(card)]
    exported = session(module, card.draw(optional=True, trailing=(3, 2)), axes)
    for batch in (4, 6) if axes[0] is not None else (4,):
        inputs = card.draw(batch=batch, optional=True, seed=batch, trailing=(3, 2))
        names = [i.name for i in exported.get_inputs()]
        got = exported.run(None, {n: i.numpy() for n, i in zip(names, inputs, strict=True)})
        want = module(*inputs)
        for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            scale = b.abs().max().item()
            # float32 in another order of summation, and once more through a Fourier transform
            torch.testing.assert_close(torch.from_numpy(a), b.detach(), rtol=1e-5, atol=1e-5 * scale)
