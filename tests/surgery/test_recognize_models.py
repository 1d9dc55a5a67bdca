"""Models of every make are looked through without a change to them, and without a crash."""

import hashlib
import random

import numpy
import pytest
import torch
from near_misses import Layer, Rms
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

import normkit as nk
from normkit.surgery.recognition import recognize, search
from normkit.surgery.recognition.specimen import Specimen


def plain():
    return nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.GELU(), Rms(), nn.Linear(12, 4))


def hooked():
    model = plain()
    model[1].register_forward_hook(lambda *_: None)
    model[3].register_full_backward_hook(lambda *_: None)
    model.register_forward_pre_hook(lambda *_: None)
    return model


def shared():
    model = nn.Sequential(nn.Linear(12, 12), nn.LayerNorm(12), nn.LayerNorm(12), Rms())
    model[2].weight, model[3].weight = model[1].weight, model[1].bias
    return model.append(model[1])


def lazy():
    return nn.Sequential(nn.LazyLinear(12), nn.LazyBatchNorm1d(), nn.LayerNorm(12))


class Late(Layer):
    def __init__(self):
        super().__init__()
        self.weight = None

    def forward(self, x):
        if self.weight is None:
            self.weight = nn.Parameter(torch.ones(x.shape[-1], dtype=x.dtype))
        return super().forward(x)


def compiled_inside():
    model = plain()
    model[1].compile(backend="eager")
    return model


def backward_done():
    model = plain()
    model[1].eval()
    model(torch.randn(3, 8)).sum().backward()
    return model


def pruned():
    model = plain()
    prune.l1_unstructured(model[1], "weight", 0.5)
    return model


def on_meta():
    with torch.device("meta"):
        return plain()


def of_complex_numbers():
    model = plain()
    model[3].weight = nn.Parameter(torch.ones(12, dtype=torch.complex64))
    return model


class Careless(Rms):
    """Changes what all share at every call."""

    def forward(self, x):
        torch.manual_seed(3), random.seed(3), numpy.random.seed(3)
        torch.set_default_dtype(torch.float64), torch.set_grad_enabled(False)
        return super().forward(x)


def of_quantized_layers():
    return torch.ao.quantization.quantize_dynamic(plain(), {nn.Linear}, dtype=torch.qint8)


class Unit(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=-1)


def of_unit_weights():
    """As vit-pytorch's nViT, whose weights are normalized like activations."""
    model = plain()
    for layer in (model[0], model[4]):
        parametrize.register_parametrization(layer, "weight", Unit())
    return model


MODELS = {  # a model -> where norms are found in it
    hooked: [],
    shared: ["1", "2", "3"],
    lazy: ["2"],
    lambda: nn.Sequential(nn.Linear(8, 12), Late()): [],
    lambda: nn.DataParallel(plain()): ["module.1", "module.3"],
    lambda: torch.compile(plain(), backend="eager"): ["_orig_mod.1", "_orig_mod.3"],
    compiled_inside: ["1", "3"],
    lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.BatchNorm1d(12))): [],
    lambda: torch.jit.trace(plain(), torch.randn(2, 8)): [],
    lambda: torch.fx.symbolic_trace(plain()): ["1"],
    of_quantized_layers: ["1", "3"],
    on_meta: ["1", "3"],
    of_complex_numbers: ["1"],
    backward_done: ["1", "3"],
    pruned: ["3"],
    lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 12)), nn.LayerNorm(12)): ["1"],
    of_unit_weights: ["1", "3"],
    lambda: nn.Sequential(nn.Linear(8, 12), Careless()): [],
}


def numbers(tensor):
    """What a tensor holds, and how often it was written into."""
    if nn.parameter.is_lazy(tensor) or tensor.is_meta:
        return None
    return hashlib.sha256(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()).digest(), tensor._version


def everything(model):
    """All that a look at a model could change, in it and beside it."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return (
        {n: (id(t), numbers(t), t.requires_grad, t.grad is not None and numbers(t.grad)) for n, t in tensors},
        [(id(p), type(p), p.training, len(p._forward_hooks), len(p._backward_hooks)) for p in model.modules()],
        [torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()],
        [torch.get_default_dtype(), torch.is_grad_enabled(), torch.compiler.is_compiling()],
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MODELS, ids=lambda make: str(list(MODELS).index(make)))
def test_a_model_of_any_make_is_left_as_it_was(make):
    model = make()
    before = everything(model)
    found = nk.recognize(model)
    assert everything(model) == before
    assert sorted(found.found) == MODELS[make]


def test_a_lazy_norm_alone_is_none_yet():
    assert nk.recognize(nn.LazyBatchNorm2d()) is None


class OwnLinear(nn.Module):
    """As GPT-2 has it: no layer of torch's."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(24, 96)), nn.Parameter(torch.randn(96))

    def forward(self, x):
        return x @ self.weight + self.bias


class MedianOfThree(OwnLinear):
    def forward(self, x):
        return (x @ self.weight)[..., :3].median(-1).values


class UnitRows(OwnLinear):
    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True) @ self.weight


def test_what_has_no_value_at_zero_is_no_linear_layer():
    assert not search._is_linear(UnitRows())


def test_what_scales_and_does_not_add_is_no_linear_layer():
    assert search._is_linear(OwnLinear())
    assert not search._is_linear(MedianOfThree())


def test_a_linear_layer_of_somebodys_own_is_recognized_in_few_calls(monkeypatch):
    calls, call = [], Specimen.__call__
    monkeypatch.setattr(Specimen, "__call__", lambda self, *inputs: calls.append(self) or call(self, *inputs))
    assert recognize.examine(OwnLinear()).why_not == "it is a linear layer"
    assert 4 <= len(calls) < 20
