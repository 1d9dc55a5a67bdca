"""The start of weight norm from a batch, through a whole model."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from normkit import check
from normkit.parameters import own_parameter, remove_after
from normkit.statistics import accurate
from normkit.weight._apply import check_model, on
from normkit.weight._layers import outputs_on
from normkit.weight.weight_norm import WeightNorm

TINY = 1e-10


@torch.no_grad()
def data_init(model: nn.Module, *inputs: Any, init_scale: float = 1.0) -> list[str]:
    """Set lengths and biases of all layers with weight norm, so that a batch leaves each with mean 0 and deviation 1.

    In one pass: a layer is set when the batch reaches it, from what the layers before make by then. Layers count their
    outputs on the last axis, convolutions on the second. Returns the names of the layers; raw weights, which the
    authors draw from N(0, 0.05^2), stay as they are.

    Args:
        model: the model, with ``weight-norm`` applied.
        inputs: what the model is called with.
        init_scale: the deviation.
    """
    check_model("data_init", model)
    check.number("data_init", "init_scale", init_scale, 0.0, open_low=True)
    layers = {name: m for name, m in model.named_modules() if _map(m) is not None}
    if not layers:
        raise ValueError("data_init: no layer of the model has weight-norm; apply it first")
    seen: set[str] = set()

    def begin(name: str, layer: nn.Module, inputs: tuple, keywords: dict) -> None:
        if name not in seen:
            seen.add(name)
            _begin(name, layer, inputs, keywords, init_scale)

    changed = [p for layer in layers.values() for p in (_map(layer).g, own_parameter(layer, "bias")) if p is not None]
    before = [(tensor, tensor.clone()) for tensor in (*changed, *(b for b in model.buffers() if not is_lazy(b)))]
    handles = [
        layer.register_forward_pre_hook(functools.partial(begin, name), with_kwargs=True, prepend=True)
        for name, layer in layers.items()
    ]
    try:
        with remove_after(handles):
            model(*inputs)
    except BaseException:
        for tensor, value in before:
            tensor.copy_(value)
        raise
    return [name for name in layers if name in seen]


def _map(layer: nn.Module) -> Any:
    return next((p for p in on(layer) if isinstance(p, WeightNorm)), None)


def _begin(name: str, layer: Any, inputs: tuple, keywords: dict, scale: float) -> None:
    own = _map(layer)
    bias = own_parameter(layer, "bias")
    own.g.fill_(1)
    if bias is not None:
        bias.fill_(0)
    y = accurate(layer.forward(*inputs, **keywords))
    y = y.movedim(-1 - len(layer.kernel_size) if isinstance(layer, _ConvNd) else -1, 0)[..., None].flatten(1)
    if y.shape[1] < 2:
        raise ValueError(
            f"data_init: inputs must give 2 values or more of each output of {name or 'the model'}, not {y.shape[1]}"
        )
    var, mean = torch.var_mean(y, 1, correction=0)
    g = scale / (var + TINY).sqrt()
    if own.dim != outputs_on(layer) or own.g.numel() != g.numel():
        g = g.mean()
    _set(own.g, g)
    if bias is not None:
        _set(bias, -mean * g)


def _set(parameter: Tensor, value: Tensor) -> None:
    """Set a parameter; what its type cannot hold, as of an output that is constant, becomes the largest that it can."""
    most = torch.finfo(parameter.dtype).max
    parameter.copy_(value.clamp(-most, most))
