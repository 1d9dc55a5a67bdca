"""Bounded functions in the place of a norm: DyT, Derf and its kin, ELN. No statistic is taken.

    y = f(alpha * x + shift) * weight + bias,   or for ELN   y = sqrt(dim) * x / sqrt(beta + x^2) * weight + bias

alpha, shift and beta are one number for the layer, weight and bias one number a feature. Features are the last axis, or
with `channels_last=False` the second.

>>> dyt(torch.tensor([[-1e9, 0.0, 1e9]]), torch.tensor([0.5]))
tensor([[-1.,  0.,  1.]])
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from normkit.ops import eager
from normkit.ops.eager import address

__all__ = ["FUNCTIONS", "derf", "dyt", "eln", "pointwise_formula"]


def _expsign(u: Tensor) -> Tensor:
    return u.sign() * -torch.expm1(-u.abs())


def _satursin(u: Tensor) -> Tensor:
    return torch.sin(u.clamp(-math.pi / 2, math.pi / 2))


def _isru(u: Tensor) -> Tensor:
    return u / torch.sqrt(u.square() + 1)


def _arctan(u: Tensor) -> Tensor:
    return (2 / math.pi) * torch.atan(u)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "erf": torch.erf,
    "tanh": torch.tanh,
    "isru": _isru,
    "arctan": _arctan,
    "expsign": _expsign,
    "satursin": _satursin,
}
_CODES = [*FUNCTIONS, "eln"]


class _Plan(ctypes.Structure):
    """PointPlan of `kernels/cpu/normkit.h`."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("function", "x_type", "alpha_type", "shift_type")),
        *((name, ctypes.c_int32) for name in ("weight_type", "bias_type", "by_row")),
        *((name, ctypes.c_int64) for name in ("dim", "width")),
        ("scale", ctypes.c_double),
    ]


def dyt(
    x: Tensor, alpha: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, channels_last: bool = True
) -> Tensor:
    """tanh(alpha * x) * weight + bias."""
    return _pointwise("dyt", x, alpha, None, weight, bias, "tanh", channels_last)


def derf(
    x: Tensor,
    alpha: Tensor,
    shift: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    function: str = "erf",
    channels_last: bool = True,
) -> Tensor:
    """f(alpha * x + shift) * weight + bias, f one of FUNCTIONS."""
    if function not in FUNCTIONS:
        raise ValueError(f"derf: function is {function!r}; it must be one of {', '.join(FUNCTIONS)}")
    return _pointwise("derf", x, alpha, shift, weight, bias, function, channels_last)


def eln(
    x: Tensor, beta: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, channels_last: bool = True
) -> Tensor:
    """sqrt(dim) * x / sqrt(beta + x^2) * weight + bias."""
    return _pointwise("eln", x, beta, None, weight, bias, "eln", channels_last)


def pointwise_formula(
    x: Tensor, alpha: Tensor, shift: Tensor | None, weight: Tensor | None, bias: Tensor | None, function: str, axis: int
) -> Tensor:
    """The definition, the features being on `axis`: arithmetic in at least float32, the result in x's type."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    alpha = alpha.to(wide.dtype)
    if function == "eln":
        y = math.sqrt(x.shape[axis]) * wide / torch.sqrt(alpha + wide.square())
    else:
        y = FUNCTIONS[function](alpha * wide if shift is None else alpha * wide + shift.to(wide.dtype))
    each = (-1,) + (1,) * (x.ndim - 1 - axis)
    if weight is not None:
        y = y * weight.to(wide.dtype).view(each)
    if bias is not None:
        y = y + bias.to(wide.dtype).view(each)
    return y.to(x.dtype)


def _pointwise(name, x, alpha, shift, weight, bias, function, channels_last) -> Tensor:
    axis = _axis(name, x, (alpha, shift), (weight, bias), channels_last)
    if eager.refusal(x, alpha, shift, weight, bias) is not None or x.dtype == torch.float64:
        return pointwise_formula(x, alpha, shift, weight, bias, function, axis)
    weight, bias = eager.packed(weight), eager.packed(bias)
    layout = _layout(x, axis)
    if layout is None:
        x = x.contiguous()
        layout = _layout(x, axis)
    if eager.needs_grad(x, alpha, shift, weight, bias):
        return _Pointwise.apply(x, alpha, shift, weight, bias, function, axis, layout)
    return _forward(x, alpha, shift, weight, bias, _plan_for(x, alpha, shift, weight, bias, function, layout))


def _axis(name: str, x: Tensor, scalars, vectors, channels_last: bool) -> int:
    """Which axis the features are on; an error if the tensors do not fit together."""
    if not x.is_floating_point():
        raise TypeError(f"{name}: x is {x.dtype}; a floating-point tensor is wanted")
    if x.ndim < (1 if channels_last else 2):
        wanted = "a feature axis" if channels_last else "at least two axes"
        raise ValueError(f"{name}: x is {tuple(x.shape)}; it must have {wanted}")
    axis = x.ndim - 1 if channels_last else 1
    dim = x.size(axis)
    for tensor in vectors:
        if tensor is not None and tensor.numel() != dim:
            raise ValueError(f"{name}: x has {dim} features on axis {axis}; weight or bias is {tuple(tensor.shape)}")
    for tensor in scalars:
        if tensor is not None and tensor.numel() != 1:
            raise ValueError(f"{name}: alpha, shift and beta are single numbers; one of them is {tuple(tensor.shape)}")
    return axis


def _layout(x: Tensor, axis: int) -> tuple[int, int, int] | None:
    """(by row, features, entries a row) of x's memory, or None if it has gaps and must be copied first.

    Whatever the order of the axes in memory, those after the features make a row, on which the gain is one number.
    """
    if axis == x.ndim - 1 and x.is_contiguous():
        return 0, x.size(axis), x.size(axis)
    order = eager.storage_order(x)
    if order is None:
        return None
    width = math.prod(x.size(other) for other in order[order.index(axis) + 1 :])
    return (0, x.size(axis), x.size(axis)) if width == 1 else (1, x.size(axis), width)


def _plan_for(x, alpha, shift, weight, bias, function, layout) -> _Plan:
    return _plan(function, layout, *map(eager.code, (x, alpha, shift, weight, bias)))


@cache
def _plan(function: str, layout: tuple[int, int, int], *types: int) -> _Plan:
    scale = math.sqrt(layout[1]) if function == "eln" else 1.0
    plan = _Plan(_CODES.index(function), *types, *layout, scale)
    plan.address = ctypes.addressof(plan)
    return plan


def _forward(x, alpha, shift, weight, bias, plan) -> Tensor:
    y = torch.empty_like(x)
    if eager.library().point_forward(
        plan.address,
        x.numel() // plan.width,
        x.data_ptr(),
        alpha.data_ptr(),
        address(shift),
        address(weight),
        address(bias),
        y.data_ptr(),
    ):
        raise MemoryError("no memory for the kernel's scratch")
    return y


def _backward(x, grad, parameters, plan, wanted) -> tuple:
    """Gradients of x, alpha, shift, weight and bias in one pass; those not wanted are None."""
    alpha, shift, weight, _ = parameters
    grad, dx = eager.dense(grad, x), torch.empty_like(x)
    made = [torch.empty_like(t) if want else None for t, want in zip(parameters, wanted, strict=True)]
    if eager.library().point_backward(
        plan.address,
        x.numel() // plan.width,
        x.data_ptr(),
        grad.data_ptr(),
        alpha.data_ptr(),
        address(shift),
        address(weight),
        dx.data_ptr(),
        *map(address, made),
    ):
        raise MemoryError("no memory for the kernel's scratch")
    return (dx, *made)


class _Pointwise(torch.autograd.Function):
    """Keeps x alone; higher derivatives are those of the formula."""

    @staticmethod
    def forward(ctx, x, alpha, shift, weight, bias, function, axis, layout):
        plan = _plan_for(x, alpha, shift, weight, bias, function, layout)
        ctx.save_for_backward(x, alpha, shift, weight, bias)
        ctx.about = function, axis, plan
        return _forward(x, alpha, shift, weight, bias, plan)

    @staticmethod
    def backward(ctx, grad):
        x, *parameters = ctx.saved_tensors
        function, axis, plan = ctx.about
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled() or eager.refusal(grad) is not None:
            grads = eager.differentiate(pointwise_formula, (x, *parameters), (function, axis), grad, needs)
        else:
            grads = _backward(x, grad, parameters, plan, needs[1:5])
        return (*grads, None, None, None)
