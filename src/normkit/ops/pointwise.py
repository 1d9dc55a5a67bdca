"""Bounded functions in the place of a norm: DyT, Derf and its kin, ELN. No statistic is taken.

    y = f(alpha * x + shift) * weight + bias,   or for ELN   y = sqrt(dim) * x / sqrt(beta + x^2) * weight + bias

alpha, shift and beta are one number for the layer, weight and bias one number a feature. Features are the last axis, or
with `channels_last=False` the second.

>>> dyt(torch.tensor([[-1e9, 0.0, 1e9]]), torch.tensor([0.5]))
tensor([[-1.,  0.,  1.]])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from normkit import check, kernels
from normkit.ops import eager, sharded, trial
from normkit.ops.eager import code

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
# As the C code numbers them.
_CODES = {name: number for number, name in enumerate([*FUNCTIONS, "eln"])}


def dyt(
    x: Tensor,
    alpha: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    channels_last: bool = True,
    owner: object = "dyt",
) -> Tensor:
    """tanh(alpha * x) * weight + bias. An error names `owner`."""
    return _pointwise(owner, "dyt", x, alpha, None, weight, bias, "tanh", channels_last)


def derf(
    x: Tensor,
    alpha: Tensor,
    shift: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    function: str = "erf",
    channels_last: bool = True,
    owner: object = "derf",
) -> Tensor:
    """f(alpha * x + shift) * weight + bias, f one of FUNCTIONS."""
    check.choice(owner, "function", function, tuple(FUNCTIONS))
    return _pointwise(owner, "derf", x, alpha, shift, weight, bias, function, channels_last)


def eln(
    x: Tensor,
    beta: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    channels_last: bool = True,
    owner: object = "eln",
) -> Tensor:
    """sqrt(dim) * x / sqrt(beta + x^2) * weight + bias."""
    return _pointwise(owner, "eln", x, beta, None, weight, bias, "eln", channels_last)


def pointwise_formula(
    x: Tensor, alpha: Tensor, shift: Tensor | None, weight: Tensor | None, bias: Tensor | None, function: str, axis: int
) -> Tensor:
    """The definition, the features being on `axis`: arithmetic in at least float32, the result in x's type."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    alpha = alpha.to(wide.dtype).reshape(())
    if function == "eln":
        y = math.sqrt(x.shape[axis]) * wide / torch.sqrt(alpha + wide.square())
    else:
        y = FUNCTIONS[function](alpha * wide if shift is None else alpha * wide + shift.to(wide.dtype).reshape(()))
    each = (-1,) + (1,) * (x.ndim - 1 - axis)
    if weight is not None:
        y = y * weight.to(wide.dtype).view(each)
    if bias is not None:
        y = y + bias.to(wide.dtype).view(each)
    return y.to(x.dtype)


def _pointwise(owner, op, x, alpha, shift, weight, bias, function, channels_last) -> Tensor:
    if eager.node is not None and channels_last and not torch.compiler.is_compiling():
        made = eager.node.point(x, alpha, shift, weight, bias, *_short(op, function))
        if made is not None:
            return made
    axis = _axis(owner, x, channels_last)
    _check_parameters(owner, x, axis, alpha, shift, weight, bias)
    if type(x) is not Tensor and sharded.is_sharded(x):
        parameters = {"alpha": alpha, "shift": shift, "weight": weight, "bias": bias}
        joined = _by_parts(owner, op, x, parameters, function, axis, channels_last)
        if joined is not None:
            return joined
    but = "there is no kernel for float64" if x.dtype == torch.float64 else None
    kind = function, axis, x.shape[axis:]
    if eager.runs_formula(op, but, x, alpha, shift, weight, bias, kind=kind):
        return pointwise_formula(x, alpha, shift, weight, bias, function, axis)
    alpha, shift, weight, bias = map(eager.pack, (alpha, shift, weight, bias))
    x, layout = _laid_out(x, axis)
    plan, width = _plan(x, alpha, shift, weight, bias, function, layout), layout[2]
    if eager.needs_grad(x, alpha, shift, weight, bias):
        return _Pointwise.apply(x, alpha, shift, weight, bias, plan, width, op, function, axis)
    return _forward(x, alpha, shift, weight, bias, plan, width)


def _by_parts(owner, op, x, parameters: dict[str, Tensor | None], function, axis: int, channels_last) -> Tensor | None:
    """A DTensor's result, each process working on its part; None where the formula must see it all."""
    part = sharded.parts(owner, x)
    if part is None or (function == "eln" and part.along((axis,))):  # eln counts the features
        return None
    alpha, shift, weight, bias = (part.parameter(owner, name, value, axis) for name, value in parameters.items())
    return part.joined(_pointwise(owner, op, part.local, alpha, shift, weight, bias, function, channels_last))


@cache
def _short(op: str, function: str) -> tuple[bytes, Callable[..., tuple]]:
    """What `kernels/node.cpp` is handed: the plan without types and sizes, and the backward pass in Python."""

    def pull(needs, grad, x, *parameters):
        return _pull((None, x.shape[-1], op, function, x.ndim - 1), needs, grad, x, *parameters)

    return kernels.POINT.pack(_CODES[function], *[0] * 8, 0.0), pull


@trial.call("dyt", lambda kind: len(kind[2]))
@trial.call("derf", lambda kind: len(kind[2]))
@trial.call("eln", lambda kind: len(kind[2]))
def _tried(kind: tuple[str, int, torch.Size], tensors: list) -> Tensor:
    function, axis, _ = kind
    op = {"tanh": "dyt", "eln": "eln"}.get(function, "derf")
    x, alpha, shift, weight, bias = tensors
    return _pointwise(op, op, x, alpha, shift, weight, bias, function, axis == x.ndim - 1)


def _axis(owner: object, x: Tensor, channels_last: bool) -> int:
    """Which axis the features are on."""
    check.floating(owner, x)
    if x.ndim < (1 if channels_last else 2):
        expected = "a feature axis" if channels_last else "at least two axes"
        raise ValueError(f"{check.whose(owner)}: x must have {expected}, but its shape is {tuple(x.shape)}")
    return x.ndim - 1 if channels_last else 1


def _check_parameters(owner: object, x: Tensor, axis: int, alpha, shift, weight, bias) -> None:
    """An error unless the layer's numbers are one each, and weight and bias one a feature."""
    features = x.shape[axis : axis + 1]
    if weight is not None and weight.shape != features:
        check.shape(owner, "weight", weight, features if weight.dim() != 1 else weight.shape)
        fitting = check.features_last if axis == x.ndim - 1 else check.channels_first
        fitting(owner, x, weight.shape[0])
    if bias is not None and bias.shape != features:
        check.shape(owner, "bias", bias, features)
    if alpha.numel() != 1 or (shift is not None and shift.numel() != 1):
        name, tensor = ("shift", shift) if alpha.numel() == 1 else ("alpha (or beta)", alpha)
        raise ValueError(
            f"{check.whose(owner)}: {name} must be a single number, but its shape is {tuple(tensor.shape)}"
        )


def _laid_out(x: Tensor, axis: int) -> tuple[Tensor, tuple[int, int, int]]:
    """x, copied if its memory has gaps, and (by row, features, entries a row) of its memory.

    Whatever the order of the axes in memory, those after the features make a row, on which the gain is one number.
    """
    if axis == x.ndim - 1 and x.is_contiguous():
        return x, (0, x.shape[axis], x.shape[axis])
    order = eager.storage_order(x)
    if order is None:
        x, order = x.contiguous(), list(range(x.ndim))
    width = math.prod(x.size(other) for other in order[order.index(axis) + 1 :])
    return x, (0, x.size(axis), x.size(axis)) if width == 1 else (1, x.size(axis), width)


def _plan(x, alpha, shift, weight, bias, function, layout) -> bytes:
    """PointPlan of `kernels/cpu/normkit.h`."""
    scale = math.sqrt(layout[1]) if function == "eln" else 1.0
    types = code(x), code(alpha), code(shift), code(weight), code(bias)
    return kernels.POINT.pack(_CODES[function], *types, *layout, scale)


def _forward(x, alpha, shift, weight, bias, plan, width) -> Tensor:
    y = torch.empty_like(x)
    eager.library(x).point_forward(plan, x.numel() // width, x, alpha, shift, weight, bias, y)
    return y


def _backward(x, grad, parameters, plan, width, wanted) -> tuple:
    """Gradients of x, alpha, shift, weight and bias in one pass; those not wanted are None."""
    alpha, shift, weight, _ = parameters
    grad, dx = eager.dense(grad, x), torch.empty_like(x)
    made = [torch.empty_like(t) if want else None for t, want in zip(parameters, wanted, strict=True)]
    eager.library(x).point_backward(plan, x.numel() // width, x, grad, alpha, shift, weight, dx, *made)
    return (dx, *made)


class _Pointwise(torch.autograd.Function):
    """Keeps x alone; higher derivatives are those of the formula."""

    @staticmethod
    def forward(ctx, x, alpha, shift, weight, bias, plan, width, name, function, axis):
        ctx.save_for_backward(x, alpha, shift, weight, bias)
        ctx.about = plan, width, name, function, axis
        return _forward(x, alpha, shift, weight, bias, plan, width)

    @staticmethod
    def backward(ctx, grad):
        return (*_pull(ctx.about, ctx.needs_input_grad, grad, *ctx.saved_tensors), None, None, None, None, None)


def _pull(about, needs, grad, x, *parameters) -> tuple:
    """Gradients of x and its parameters, by the kernel or the formula."""
    plan, width, name, function, axis = about
    if eager.runs_formula(f"{name} backward", eager.derived_again(), grad):
        return eager.differentiate(pointwise_formula, (x, *parameters), (function, axis), grad, needs)
    if plan is None:
        alpha, shift, weight, bias = parameters
        plan = _plan(x, alpha, shift, weight, bias, function, (0, width, width))
    return _backward(x, grad, parameters, plan, width, needs[1:5])
