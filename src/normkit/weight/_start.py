"""The start of weight norm from a batch, through a whole model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.parameters import own_parameter, remove_after
from normkit.weight._apply import check_model, on
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
    layers = {name: m for name, m in model.named_modules() if any(isinstance(p, WeightNorm) for p in on(m))}
    if not layers:
        raise ValueError("data_init: no layer of the model has weight-norm; apply it first")
    seen: set[int] = set()

    def begin(layer: nn.Module, inputs: tuple, keywords: dict) -> None:
        if id(layer) not in seen:
            seen.add(id(layer))
            _begin(layer, inputs, keywords, init_scale)

    handles = [layer.register_forward_pre_hook(begin, with_kwargs=True, prepend=True) for layer in layers.values()]
    with remove_after(handles):
        model(*inputs)
    return [name for name, layer in layers.items() if id(layer) in seen]


def _begin(layer: nn.Module, inputs: tuple, keywords: dict, scale: float) -> None:
    own = next(p for p in on(layer) if isinstance(p, WeightNorm))
    bias = own_parameter(layer, "bias")
    own.g.fill_(1)
    if bias is not None:
        bias.fill_(0)
    y: Tensor = layer.forward(*inputs, **keywords)
    axis = y.dim() - 1 if isinstance(layer, nn.Linear) else 1
    var, mean = torch.var_mean(y, [a for a in range(y.dim()) if a != axis], correction=0)
    g = scale / (var + TINY).sqrt()
    own.g.copy_(g if own.g.numel() == g.numel() else g.mean())
    if bias is not None:
        bias.copy_(-mean * g)
