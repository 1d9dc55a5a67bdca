"""Everything that is worked out within one vector: layer norm, RMS norm and their kin, as one rule.

    z = x - mean(x)  or  x,        y = z * r * (offset + weight) + bias,

with r the reciprocal of a statistic of z. What a method is, is the rule:

>>> x = torch.tensor([[3.0, 4.0]])
>>> row_norm(x, rule=Row(eps=0.0))                                  # RMS norm
tensor([[0.8485, 1.1314]])
>>> row_norm(x, rule=Row(eps=1e-5, eps_place="floor"))              # to unit length
tensor([[0.6000, 0.8000]])
>>> row_norm(x, rule=Row(center=True, statistic="absolute", eps=0.0))
tensor([[-1.,  1.]])

The formula below is the definition. The C kernel computes the same in one pass over memory, and is taken when
`eager.refusal` has nothing to say against it.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from normkit.ops import eager
from normkit.ops.eager import address
from normkit.statistics import root

__all__ = ["Row", "add_layer_norm", "add_rms_norm", "add_row_norm", "layer_norm", "rms_norm", "row_formula", "row_norm"]

STATISTICS = ("square", "absolute", "maximum", "zero-sum")
EPS_PLACES = ("inside", "outside", "floor")
CASTS = ("late", "early")


class _Plan(ctypes.Structure):
    """RowPlan of `kernels/cpu/normkit.h`."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("center", "statistic", "place", "early")),
        *((name, ctypes.c_int32) for name in ("x_type", "weight_type", "bias_type", "shared")),
        *((name, ctypes.c_int64) for name in ("dim", "part")),
        *((name, ctypes.c_double) for name in ("eps", "constant", "offset", "scale")),
    ]


@dataclass(frozen=True)
class Row:
    """How a vector of d entries is normalized: which statistic, where eps stands, when half precision is rounded.

    center: the mean is subtracted first.
    statistic, and r:
        "square"     s = sum z^2 over the first `part` entries (all d by default; all d are divided); r by `eps_place`:
                     "inside"  1 / sqrt(s / part + eps)         torch, Llama
                     "outside" 1 / (sqrt(s / part) + eps)       the authors of RMSNorm
                     "floor"   1 / max(sqrt(s), eps)            a length, so not divided by part: ScaleNorm, FixNorm
        "absolute"   1 / (constant * mean |z| + eps)
        "maximum"    1 / (max |z| + eps)
        "zero-sum"   1 / sqrt((sum x^2 + (sum x)^2) / (d + 1) + eps): x stands for d + 1 entries whose sum is zero
    offset: the gain is offset + weight (1 in Gemma). scale: the gain where there is no weight.
    cast: "late" rounds a half-precision result once, at the end; "early" rounds z * r before the gain as well (Llama).

    The gradient of a square root at 0 is taken as 0, as torch.norm does, so a row of zeros has no NaN where eps > 0.
    """

    center: bool = False
    statistic: str = "square"
    eps: float = 1e-6
    eps_place: str = "inside"
    part: int | None = None
    constant: float = 1.0
    offset: float = 0.0
    scale: float = 1.0
    cast: str = "late"
    _plans: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, known in (("statistic", STATISTICS), ("eps_place", EPS_PLACES), ("cast", CASTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"Row: {name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}")
        if self.part is not None and (self.center or self.statistic != "square" or self.part < 1):
            raise ValueError(f"Row: part={self.part} needs statistic='square', center=False and at least one entry")
        if self.statistic == "zero-sum" and self.center:
            raise ValueError("Row: statistic='zero-sum' stands for a centered vector; center must be False")
        if self.statistic != "square" and self.eps_place != "inside":
            raise ValueError(f"Row: eps_place={self.eps_place!r} is for statistic='square', not {self.statistic!r}")

    def reciprocal(self, z: Tensor, axes: tuple[int, ...]) -> Tensor:
        """r, one number a row, as a formula in PyTorch."""
        dim = math.prod([z.shape[axis] for axis in axes])
        if self.statistic == "absolute":
            return 1 / (self.constant * z.abs().mean(axes, keepdim=True) + self.eps)
        if self.statistic == "maximum":
            return 1 / (z.abs().amax(axes, keepdim=True) + self.eps)
        if self.statistic == "zero-sum":
            q = z.square().sum(axes, keepdim=True) + z.sum(axes, keepdim=True).square()
            return torch.rsqrt(q / (dim + 1) + self.eps)
        part = dim if self.part is None else self.part
        s = (z if self.part is None else z[..., :part]).square().sum(axes, keepdim=True)
        if self.eps_place == "inside":
            return torch.rsqrt(s / part + self.eps)
        if self.eps_place == "outside":
            return 1 / (root(s) / math.sqrt(part) + self.eps)
        return 1 / root(s).clamp(min=self.eps)

    def plan(self, dim: int, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> _Plan:
        """The rule and the types as the C code wants them; made once."""
        key = (dim, x.dtype, weight is not None and (weight.dtype, weight.numel()), bias is not None and bias.dtype)
        made = self._plans.get(key)
        return made if made is not None else self._plans.setdefault(key, self._make_plan(dim, x, weight, bias))

    def _make_plan(self, dim: int, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> _Plan:
        plan = _Plan()
        plan.center, plan.early = self.center, self.cast == "early"
        plan.statistic, plan.place = STATISTICS.index(self.statistic), EPS_PLACES.index(self.eps_place)
        plan.x_type, plan.weight_type, plan.bias_type = map(eager.code, (x, weight, bias))
        plan.shared = weight is not None and weight.numel() == 1 and dim != 1
        plan.dim, plan.part = dim, dim if self.part is None else self.part
        plan.eps, plan.constant, plan.offset, plan.scale = self.eps, self.constant, self.offset, self.scale
        plan.address = ctypes.addressof(plan)
        plan.wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        plan.stats = 3 if self.center else 2 if self.statistic == "zero-sum" else 1
        return plan


def row_formula(x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, count: int = 1) -> Tensor:
    """The definition, over the last `count` axes: arithmetic in at least float32, the result in x's type."""
    return row_values(x, weight, bias, rule, count).to(x.dtype)


def row_values(x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, count: int = 1) -> Tensor:
    """The definition before its result is rounded to x's type."""
    axes = tuple(range(-count, 0))
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    z = wide - wide.mean(axes, keepdim=True) if rule.center else wide
    n = z * rule.reciprocal(z, axes)
    if rule.cast == "early":
        n = n.to(x.dtype).to(wide.dtype)
    if weight is not None:
        n = n * (weight.to(wide.dtype) + rule.offset if rule.offset else weight.to(wide.dtype))
    elif rule.scale != 1:
        n = n * rule.scale
    if bias is not None:
        n = n + bias.to(wide.dtype)
    return n


def row_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    rule: Row = Row(),
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """Normalizes the vectors of x by `rule`; the result has x's shape, type and strides.

    weight: one number an entry, a single number for all, or None. bias: one number an entry, or None.
    shape: the trailing axes that make a vector, where weight does not say it (default: the last axis).
    Any mix of float types: half-precision x is worked out in float32, whatever the type of weight and bias.
    """
    count, dim = vector("row_norm", x, weight, bias, rule, shape)
    if eager.refusal(x, weight, bias) is not None:
        return row_formula(x, weight, bias, rule, count)
    weight, bias = eager.packed(weight), eager.packed(bias)
    if not x.is_contiguous():
        x, restore = _arrange(x, count)
        if restore is not None:
            return restore(row_norm(x, weight, bias, rule, shape))
    if eager.needs_grad(x, weight, bias):
        return _RowNorm.apply(x, weight, bias, rule.plan(dim, x, weight, bias), (rule, count))
    return _forward(x, weight, bias, rule.plan(dim, x, weight, bias))


def add_row_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    rule: Row = Row(),
    shape: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """Adds, then normalizes, in one pass: `(row_norm(total), total)` with total = x + residual in x's type.

    >>> y, total = add_row_norm(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]), rule=Row(eps=0.0))
    >>> total
    tensor([3., 4.])
    """
    count, dim = vector("add_row_norm", x, weight, bias, rule, shape)
    if x.shape != residual.shape:
        raise ValueError(f"add_row_norm: residual is {tuple(residual.shape)}; it must be as x, {tuple(x.shape)}")
    if eager.refusal(x, weight, bias, residual) is not None or x.dtype != residual.dtype:
        return _add_formula(x, residual, weight, bias, rule, count)
    weight, bias = eager.packed(weight), eager.packed(bias)
    if not x.is_contiguous():
        arranged, restore = _arrange(x, count)
        if restore is not None:
            return _add_formula(x, residual, weight, bias, rule, count)
        x = arranged
    if eager.needs_grad(x, residual, weight, bias):
        return _AddRowNorm.apply(x, residual, weight, bias, rule, count, dim)
    return _add_forward(x, residual, weight, bias, rule.plan(dim, x, weight, bias))


def _add_formula(x, residual, weight, bias, rule, count):
    total = (x + residual).to(x.dtype)
    return row_formula(total, weight, bias, rule, count), total


def vector(name: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, shape) -> tuple[int, int]:
    """How many trailing axes a vector has, and how many entries; an error if the tensors do not fit together."""
    if x.ndim and x.is_floating_point() and (shape is None or len(shape) == 1):
        dim = x.size(-1)  # the common case, at the least cost
        fits = (shape is None or shape[0] == dim) and (rule.part is None or rule.part <= dim)
        if fits and (weight is None or weight.shape == (dim,)) and (bias is None or bias.shape == (dim,)):
            return 1, dim
    return _checked_vector(name, x, weight, bias, rule, shape)


def _checked_vector(name, x, weight, bias, rule, shape) -> tuple[int, int]:
    if not x.is_floating_point():
        raise TypeError(f"{name}: x is {x.dtype}; a floating-point tensor is wanted")
    if shape is None:
        shape = _shape(x, weight, bias)
    count, dim = len(shape), math.prod(shape)
    if count == 0 or count > x.ndim or (x.size(-1) != dim if count == 1 else x.shape[-count:] != tuple(shape)):
        raise ValueError(f"{name}: x is {tuple(x.shape)}; its last axes must be {tuple(shape)}, what is normalized")
    if weight is not None and weight.numel() not in (1, dim):
        raise ValueError(f"{name}: weight is {tuple(weight.shape)}; it must be {tuple(shape)} or a single number")
    if bias is not None and bias.numel() != dim:
        raise ValueError(f"{name}: bias is {tuple(bias.shape)}; it must be {tuple(shape)}")
    if rule.part is not None and (rule.part > dim or count > 1):
        raise ValueError(f"{name}: part is {rule.part}; it must be at most {dim}, the last and only normalized axis")
    return count, dim


def _shape(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[int, ...]:
    """The axes that make a vector, as weight or bias tell; the last one where neither does."""
    if weight is not None and (weight.ndim > 1 or weight.numel() != 1):
        return weight.shape
    return x.shape[-1:] if bias is None else bias.shape


def _arrange(x: Tensor, count: int):
    """A layout that the kernel takes, and how to bring its result back into x's strides (None: nothing to do).

    Where x fills its memory and every vector is in one piece, the order of the vectors does not matter.
    """
    order = eager.storage_order(x)
    if order is None:
        return x.contiguous(), None
    if order[-count:] == list(range(x.ndim - count, x.ndim)):
        return x, None
    inverse = sorted(range(x.ndim), key=order.__getitem__)
    return x.contiguous(), lambda y: y.permute(order).contiguous().permute(inverse)


def _forward(x, weight, bias, plan, stats=None) -> Tensor:
    y = torch.empty_like(x)
    if eager.library().row_forward(
        plan.address,
        x.numel() // plan.dim,
        x.data_ptr(),
        0,
        address(weight),
        address(bias),
        0,
        y.data_ptr(),
        address(stats),
    ):
        raise MemoryError("row_norm: no memory for the kernel's scratch")
    return y


def _add_forward(x, residual, weight, bias, plan, stats=None) -> tuple[Tensor, Tensor]:
    y, total, residual = torch.empty_like(x), torch.empty_like(x), eager.dense(residual, x)
    if eager.library().row_forward(
        plan.address,
        x.numel() // plan.dim,
        x.data_ptr(),
        residual.data_ptr(),
        address(weight),
        address(bias),
        total.data_ptr(),
        y.data_ptr(),
        address(stats),
    ):
        raise MemoryError("add_row_norm: no memory for the kernel's scratch")
    return y, total


def _backward(x, grad, grad_total, weight, bias, stats, plan, wanted) -> tuple:
    """Gradients of x, weight and bias, in one pass; those not wanted are None."""
    dx = torch.empty_like(x)
    dweight = torch.empty_like(weight) if wanted[0] else None
    dbias = torch.empty_like(bias) if wanted[1] else None
    grad = eager.dense(grad, x)
    grad_total = None if grad_total is None else eager.dense(grad_total, x)
    if eager.library().row_backward(
        plan.address,
        x.numel() // plan.dim,
        x.data_ptr(),
        grad.data_ptr(),
        address(grad_total),
        address(weight),
        stats.data_ptr(),
        dx.data_ptr(),
        address(dweight),
        address(dbias),
    ):
        raise MemoryError("row_norm: no memory for the kernel's scratch")
    return dx, dweight, dbias


def statistics(x: Tensor, plan: _Plan) -> Tensor:
    """Room for what the backward pass needs to know of each row."""
    return torch.empty(x.numel() // plan.dim * plan.stats, dtype=plan.wide)


class _RowNorm(torch.autograd.Function):
    """Keeps x and up to three numbers a row; higher derivatives are those of the formula."""

    @staticmethod
    def forward(ctx, x, weight, bias, plan, formula):
        stats = statistics(x, plan)
        ctx.save_for_backward(x, weight, bias, stats)
        ctx.about = plan, formula
        return _forward(x, weight, bias, plan, stats)

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias, stats = ctx.saved_tensors
        plan, formula = ctx.about
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled() or eager.refusal(grad) is not None:
            grads = eager.differentiate(row_formula, (x, weight, bias), formula, grad, needs)
        else:
            grads = _backward(x, grad, None, weight, bias, stats, plan, needs[1:3])
        return (*grads, None, None)


class _AddRowNorm(torch.autograd.Function):
    """The same after an addition; x and residual have one gradient, made in the same pass."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, rule, count, dim):
        plan = rule.plan(dim, x, weight, bias)
        stats = statistics(x, plan)
        y, total = _add_forward(x, residual, weight, bias, plan, stats)
        ctx.save_for_backward(total, weight, bias, stats)
        ctx.about = rule, count, plan
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx, grad, grad_total):
        if grad is None:
            return grad_total, grad_total, None, None, None, None, None
        total, weight, bias, stats = ctx.saved_tensors
        rule, count, plan = ctx.about
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled() or eager.refusal(grad, grad_total) is not None:
            wanted = (needs[0] or needs[1], *needs[2:4])
            dx, dweight, dbias = eager.differentiate(row_formula, (total, weight, bias), (rule, count), grad, wanted)
            dx = dx if grad_total is None or dx is None else dx + grad_total
        else:
            dx, dweight, dbias = _backward(total, grad, grad_total, weight, bias, stats, plan, needs[2:4])
        return dx, dx, dweight, dbias, None, None, None


def layer_norm(x: Tensor, shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """As `torch.nn.functional.layer_norm`."""
    return row_norm(x, weight, bias, _layer_rule(eps), tuple(shape))


def rms_norm(x: Tensor, shape, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """As `torch.nn.functional.rms_norm`, where an eps of None means 1.2e-7; here eps is always a number."""
    return row_norm(x, weight, None, _rms_rule(eps), tuple(shape))


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """`(layer_norm(x + residual), x + residual)` in one pass, over the axes of weight, or the last."""
    return add_row_norm(x, residual, weight, bias, _layer_rule(eps))


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """`(rms_norm(x + residual), x + residual)` in one pass, over the axes of weight, or the last."""
    return add_row_norm(x, residual, weight, None, _rms_rule(eps))


@cache
def _layer_rule(eps: float) -> Row:
    return Row(center=True, eps=eps)


@cache
def _rms_rule(eps: float) -> Row:
    return Row(eps=eps)
