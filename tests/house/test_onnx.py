"""The evaluated methods of the activation room in ONNX: the same numbers from onnxruntime, for any batch size."""

import pathlib

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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "layer, operator, options",
    [
        ("`delta-net`", "aten.linalg_solve_triangular", {"mixer": "delta-net", "mixer_options": {"key_heads": 2}}),
        ("mixture of experts", "aten.sort", {"feedforward": "moe", "router": "router:experts=4,top_k=2", "hidden": 8}),
    ],
)
def test_the_page_names_the_layers_that_torch_cannot_convert(layer, operator, options):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    model = nk.Decoder(vocab=17, dim=16, depth=1, heads=4, **options).eval()
    with pytest.raises(RuntimeError) as caught:
        session(model, [torch.zeros(2, 6, dtype=torch.int64)], [None])
    assert f"target=torch.ops.{operator}" in str(caught.value.__cause__)
    assert layer in page
    assert operator in page
