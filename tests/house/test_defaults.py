"""Another default device or type of torch changes no answer: place and type are those of the inputs and the model."""

import contextlib

import pytest
import torch
from torch import nn

import answers
import normkit as nk
from normkit.contract.subject import build, close, methods, outputs
from normkit.kinds import ADAPTER
from normkit.lab import api

METHODS = [*answers.CALLED, *methods(lambda kind: kind is ADAPTER), "alds-decompose", "wd-scaling"]
OF_NO_TENSORS = {"gaussian-normality-threshold", "turboquant-codebook"}  # what they answer is made by the defaults


@contextlib.contextmanager
def other_defaults():
    """A device on which numbers are lost, so that what is made there is missed, and twice the bits."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def answered(card, defaults):
    torch.manual_seed(0)
    subject = card.kind.subject(card, dtype=torch.float32)
    inputs = [x.clone().requires_grad_(x.is_floating_point()) if torch.is_tensor(x) else x for x in subject.inputs]
    leaves = [x for x in [*inputs, *subject.learned.values()] if torch.is_tensor(x) and x.requires_grad]
    with defaults:
        given = outputs(subject.call(*inputs))
        from_learned = [y for y in given if y.requires_grad]
        if from_learned:
            torch.autograd.backward(from_learned, [torch.ones_like(y) for y in from_learned])
    return [y.detach() for y in given] + [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in OF_NO_TENSORS])
def test_a_method_answers_where_its_inputs_are_and_in_their_type(name):
    card = nk.card(name)
    want = answered(card, contextlib.nullcontext())
    close(answered(card, other_defaults()), want, rtol=0, atol=0)


@contextlib.contextmanager
def half_by_default(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["turboquant", "sparse-etf-classifier"])
def test_what_starts_from_a_decomposition_is_built_in_half_precision(name, dtype):
    with half_by_default(dtype):
        built = nk.card(name).small()
    assert {value.dtype for value in built.buffers()} == {dtype}


@pytest.mark.parametrize(
    ("name", "options"),
    [("cotta", {"restore": 0.5}), ("deyo", {"transform": "pixel"})],
)
def test_random_numbers_are_the_same_whatever_the_default_type(name, options):
    x, results = torch.randn(6, 8, 6, 6), []
    for dtype in (torch.float32, torch.bfloat16):
        module = build(name, dtype=torch.float32, **options)
        with half_by_default(dtype):
            torch.manual_seed(0)
            results.append([module(x).detach(), *module.parameters()])
    close(*results, rtol=0, atol=0)


def small():
    """A model with a norm of torch and one of a stranger."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 8), Rms(8), nn.Linear(8, 4))


def of_images():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)).eval()


class Rms(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 3e-6).sqrt() * self.gain


def watched(model, x):
    target = torch.ones(len(x), 4, device="cpu")
    optimizer = torch.optim.AdamW(model.parameters())
    with nk.watch(model, optimizer, every=1) as seen:
        for _ in range(4):
            nn.functional.mse_loss(model(x), target).backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen.diagnosis()


def decoder():
    torch.manual_seed(0)
    return nk.Decoder(vocab=30, dim=16, depth=1, heads=2, norm="layernorm").eval()


CALLS = {
    "recognize": (small, lambda model, x: nk.recognize(model, prove=True)),
    "swap": (small, lambda model, x: nk.swap(model, "dyt", example=x, match=True)),
    "fold": (of_images, lambda model, x: nk.fold(model, x[:, None, :4, None].expand(-1, 3, 4, 4))),
    "convert": (decoder, lambda model, x: nk.convert(model, "pre-rmsnorm", (x > 0).long())),
    "ready": (decoder, lambda model, x: nk.ready(model, "rotation", (x > 0).long())),
    "adapt": (of_images, lambda model, x: nk.adapt(model)),
    "param_groups": (small, lambda model, x: nk.param_groups(model)),
    "watch": (small, watched),
    "claim": (small, lambda model, x: nk.claim("disparity-decomposition", run=True)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_model_is_looked_into_and_changed_whatever_the_default_device_is(name):
    build, call = CALLS[name]
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    want, model = str(call(build(), x)), build()
    with torch.device("meta"):
        assert str(call(model, x)) == want


def test_a_comparison_is_made_on_the_processor_unless_it_names_a_device():
    with torch.device("meta"), api.keep_chances():
        assert torch.ones(1).device.type == "cpu"
