"""Gated activations: one half of the features, activated, multiplies the other, as in SwiGLU."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.ops import eager

Map = Callable[[Tensor], Tensor]
_aten = torch.ops.aten


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# the activation, and what writes its derivative times a gradient into a given tensor
GATES: dict[str, tuple[Map, Callable[..., Tensor]]] = {
    "swiglu": (F.silu, _aten.silu_backward.grad_input),
    "geglu": (F.gelu, _aten.gelu_backward.grad_input),
    "geglu_tanh": (_gelu_tanh, functools.partial(_aten.gelu_backward.grad_input, approximate="tanh")),
}


def gated(h: Tensor, name: str) -> Tensor:
    """Return u * act(gate) for h = (u, gate), halves of the last axis.

    >>> gated(torch.tensor([2.0, 3.0, 0.0, 100.0]), "swiglu")
    tensor([  0., 300.])
    """
    if eager.needs_grad(h) and eager.refusal(h) is None:
        return _Gated.apply(h, name)
    return _formula(h, name)


def _formula(h: Tensor, name: str) -> Tensor:
    u, gate = h.chunk(2, -1)
    return GATES[name][0](gate) * u


class _Gated(torch.autograd.Function):
    """Keeps h alone, and writes both halves of its gradient in place: autograd would keep act(gate) and join copies."""

    @staticmethod
    def forward(ctx, h, name):
        ctx.save_for_backward(h)
        ctx.name = name
        return _formula(h, name)

    @staticmethod
    def backward(ctx, grad):
        (h,) = ctx.saved_tensors
        if torch.is_grad_enabled() or eager.refusal(grad) is not None:
            return *eager.differentiate(_formula, (h,), (ctx.name,), grad, (True,)), None
        act, derivative = GATES[ctx.name]
        dh = torch.empty_like(h)
        (u, gate), (du, dgate) = h.chunk(2, -1), dh.chunk(2, -1)
        torch.mul(grad, act(gate), out=du)
        derivative(torch.mul(grad, u), gate, grad_input=dgate)
        return dh, None
