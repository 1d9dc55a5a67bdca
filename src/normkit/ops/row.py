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

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from normkit import check, kernels
from normkit.ops import eager, paths, sharded, trial
from normkit.ops.eager import CODES
from normkit.statistics import root

__all__ = ["Row", "add_layer_norm", "add_rms_norm", "add_row_norm", "layer_norm", "rms_norm", "row_formula", "row_norm"]

# As the C code numbers them.
STATISTICS = {"square": 0, "absolute": 1, "maximum": 2, "zero-sum": 3}
EPS_PLACES = {"inside": 0, "outside": 1, "floor": 2}
CASTS = {"late": 0, "early": 1, "factor": 2, "native": 3}  # the C code knows the first two
SMALL = 2**15  # entries up to which two short calls take less time than one of both
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Row:
    """How a vector of d entries is normalized: which statistic, where eps is, when half precision is rounded.

    center: the mean is subtracted first.
    statistic, and r:
        "square"     s = sum z^2 over the first `part` entries (all d by default; all d are divided); r by `eps_place`:
                     "inside"  1 / sqrt(s / part + eps)         torch, Llama
                     "outside" 1 / (sqrt(s / part) + eps)       the authors of RMSNorm
                     "floor"   1 / max(sqrt(s), eps)            a length, so not divided by part: ScaleNorm, FixNorm
        "absolute"   1 / (constant * mean |z| + eps)
        "maximum"    1 / (max |z| + eps)
        "zero-sum"   1 / sqrt((sum x^2 + (sum x)^2) / (d + 1) + eps): x is d + 1 entries whose sum is zero
    offset: the gain is offset + weight (1 in Gemma). scale: the gain where there is no weight.
    cast, where the input is in half precision:
        "late"    all is worked out in float32, and the result rounded once, at the end
        "early"   z * r is rounded before the gain as well (Llama)
        "factor"  z and r are rounded, and from there on every step is taken in the input's type
        "native"  every step is, the statistic too
    The last two have no kernel there; in float32 and float64 all four are one.

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

    def __post_init__(self) -> None:
        for name, known in (("statistic", STATISTICS), ("eps_place", EPS_PLACES), ("cast", CASTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"Row: {name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}")
        for name in ("eps", "constant", "offset", "scale"):
            check.number("Row", name, getattr(self, name))
        if self.part is not None:
            check.size("Row", "part", self.part)
        if self.part is not None and (self.center or self.statistic != "square"):
            raise ValueError(f"Row: part={self.part} needs statistic='square' and center=False")
        if self.statistic == "zero-sum" and self.center:
            raise ValueError("Row: statistic='zero-sum' stands for a centered vector; center must be False")
        if self.statistic != "square" and self.eps_place != "inside":
            raise ValueError(f"Row: eps_place={self.eps_place!r} is for statistic='square', not {self.statistic!r}")

    def unbiased(self, count: int) -> Row:
        """The rule with the variance of ``count`` entries divided by count - 1.

        z / (unbiased root + eps) = c z / (biased root + c eps), with c the biased root over the unbiased one.

        >>> row_norm(torch.tensor([[1.0, 3.0]]), rule=Row(center=True, eps=0.0).unbiased(2))
        tensor([[-0.7071,  0.7071]])
        """
        c = math.sqrt((count - 1) / count)
        eps = self.eps * c ** (2 if self.eps_place == "inside" else 1)
        return replace(self, eps=eps, offset=self.offset * c, scale=self.scale * c)

    def reciprocal(self, z: Tensor, axes: tuple[int, ...]) -> Tensor:
        """r, one number a row, as a formula in PyTorch."""
        dim = math.prod([z.shape[axis] for axis in axes])
        if self.statistic == "absolute":
            return 1 / (self.constant * z.abs().mean(axes, keepdim=True) + self.eps)
        if self.statistic == "maximum":
            most = z.abs().amax(axes, keepdim=True) if dim else z.sum(axes, keepdim=True)  # none has no maximum
            return 1 / (most + self.eps)
        if self.statistic == "zero-sum":
            return self.factor(z.square().sum(axes, keepdim=True) + z.sum(axes, keepdim=True).square(), dim)
        squares = (z if self.part is None else z[..., : self.part]).square()
        if self.eps_place == "inside":
            return torch.rsqrt(squares.mean(axes, keepdim=True) + self.eps)
        return self.factor(squares.sum(axes, keepdim=True), dim)

    def factor(self, s: Tensor, dim: int) -> Tensor:
        """r, from the sum of the squares or magnitudes of ``dim`` entries; for "zero-sum" with their sum squared."""
        if self.statistic == "absolute":
            return 1 / (self.constant * (s / dim) + self.eps)
        if self.statistic == "zero-sum":
            return torch.rsqrt(s / (dim + 1) + self.eps)
        part = dim if self.part is None else self.part
        if self.eps_place == "inside":
            return torch.rsqrt(s / part + self.eps)
        if self.eps_place == "outside":
            return 1 / (root(s) / math.sqrt(part) + self.eps)
        return 1 / root(s).clamp(min=self.eps)

    @cached_property
    def bare_plan(self) -> bytes:
        """The plan without types and sizes, which the short way fills in."""
        return _plan(self, 0, None, None, None, False)

    def __getstate__(self) -> dict:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def plan(self, dim: int, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bytes:
        """Rule and types as RowPlan of `kernels/cpu/normkit.h` has them: a plain value, good for any process."""
        weight_type, bias_type = None if weight is None else weight.dtype, None if bias is None else bias.dtype
        return _plan(
            self, dim, x.dtype, weight_type, bias_type, weight is not None and dim != 1 and weight.numel() == 1
        )

    def pull(self, needs, grad, x, weight, bias, stats) -> tuple:
        """The backward pass of `kernels/node.cpp` where it does not call the kernel itself."""
        return _pull((None, self, 1, x.shape[-1]), needs, grad, x, weight, bias, stats)


@lru_cache(maxsize=1024)
def _plan(rule: Row, dim: int, x_type, weight_type, bias_type, shared: bool) -> bytes:
    exact = x_type in (torch.float32, torch.float64)  # no type: the short way, which does not know it either
    cast = min(CASTS[rule.cast], CASTS["early"]) if exact else CASTS[rule.cast]
    kinds = rule.center, STATISTICS[rule.statistic], EPS_PLACES[rule.eps_place], cast
    types = (CODES.get(kind, 0) for kind in (x_type, weight_type, bias_type))
    numbers = rule.eps, rule.constant, rule.offset, rule.scale
    return kernels.ROW.pack(*kinds, *types, shared, dim, rule.part or dim, *numbers)


def row_formula(x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, count: int = 1) -> Tensor:
    """The definition, over the last `count` axes: arithmetic in at least float32, the result in x's type."""
    return row_values(x, weight, bias, rule, count).to(x.dtype)


def row_values(x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, count: int = 1) -> Tensor:
    """The definition before its result is rounded to x's type."""
    axes = tuple(range(-count, 0))
    if rule.cast in ("factor", "native") and x.dtype in HALVES:
        return _stepwise(x, weight, bias, rule, axes)
    wide = x.float() if x.dtype in HALVES else x
    z = wide - wide.mean(axes, keepdim=True) if rule.center else wide
    return _gained(z * rule.reciprocal(z, axes), x.dtype, weight, bias, rule)


def _gained(n: Tensor, kind: torch.dtype, weight: Tensor | None, bias: Tensor | None, rule: Row) -> Tensor:
    """What a rule does to the normalized values of an input of type ``kind``."""
    wide = n.dtype
    if rule.cast == "early":
        n = n.to(kind).to(wide)
    if weight is not None:
        n = n * (weight.to(wide) + rule.offset if rule.offset else weight.to(wide))
    elif rule.scale != 1:
        n = n * rule.scale
    if bias is not None:
        n = n + bias.to(wide)
    return n


def _stepwise(x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, axes: tuple[int, ...]) -> Tensor:
    """The definition in half precision, each step of it rounded: all of them, or from the factor r on."""
    start = x if rule.cast == "native" else x.float()
    z = start - start.mean(axes, keepdim=True) if rule.center else start
    n = z.to(x.dtype) * rule.reciprocal(z, axes).to(x.dtype)
    if weight is not None:
        n = n * (weight + rule.offset if rule.offset else weight)
    elif rule.scale != 1:
        n = n * rule.scale
    return n if bias is None else n + bias


def row_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    rule: Row = Row(),
    shape: tuple[int, ...] | None = None,
    owner: object = "row_norm",
) -> Tensor:
    """Normalizes the vectors of x by `rule`; the result has x's shape, type and strides.

    weight: one number an entry, a single number for all, or None. bias: one number an entry, or None.
    shape: the trailing axes that make a vector, where weight does not say it (default: the last axis).
    owner: whom an error names.
    Any mix of float types: half-precision x is worked out in float32, whatever the type of weight and bias.
    """
    if not torch.compiler.is_compiling():
        made = None
        if eager.node is not None:
            made = eager.node.row(x, weight, bias, rule.bare_plan, shape, rule.pull)
        elif eager.short_row is not None:
            made = eager.short_row(x, weight, bias, rule.bare_plan, shape)
        if made is not None:
            return made
    count, dim = vector(owner, x, weight, bias, rule, shape)
    if type(x) is not Tensor and sharded.is_sharded(x):
        joined = _by_parts(owner, x, None, weight, bias, rule, count)
        if joined is not None:
            return joined[0]
    own = lambda: _by_torch(x, weight, bias, rule, count)  # noqa: E731
    if eager.runs_formula("row_norm", lambda: rounding(rule, x), x, weight, bias, kind=(rule, count), own=own):
        check.floating(owner, x)
        torchs = own()
        return row_formula(x, weight, bias, rule, count) if torchs is None else torchs()
    return _by_kernel(x, weight, bias, rule, count, dim)


def _by_kernel(x: Tensor, weight, bias, rule: Row, count: int, dim: int) -> Tensor:
    x, restore = (x, None) if x.is_contiguous() else _arrange(x, count)
    weight, bias = eager.pack(weight), eager.pack(bias)
    plan = rule.plan(dim, x, weight, bias)
    if eager.needs_grad(x, weight, bias):
        y = _RowNorm.apply(x, weight, bias, plan, rule, count, dim)
    else:
        y = _forward(x, weight, bias, plan, dim)
    return y if restore is None else restore(y)


def _by_torch(x: Tensor, weight, bias, rule: Row, count: int) -> Callable[[], Tensor] | None:
    """Torch's own function for a rule, where there is one and it may stand in for a kernel."""
    if not eager.own_stands_in(x, weight, bias):
        return None
    scale = rule.scale if weight is None else 1.0
    shape = x.shape[-count:]
    if replace(rule, center=False, eps=0.0, scale=scale) != Row(eps=0.0) or (
        weight is not None and weight.shape != shape
    ):
        return None
    if rule.center:
        return lambda: functional.layer_norm(x, shape, weight, bias, rule.eps)
    return None if bias is not None else lambda: functional.rms_norm(x, shape, weight, rule.eps)


def add_row_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    rule: Row = Row(),
    shape: tuple[int, ...] | None = None,
    owner: object = "add_row_norm",
) -> tuple[Tensor, Tensor]:
    """Adds, then normalizes, in one pass: `(row_norm(total), total)` with total = x + residual in x's type.

    >>> y, total = add_row_norm(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]), rule=Row(eps=0.0))
    >>> total
    tensor([3., 4.])
    """
    if not torch.compiler.is_compiling() and _in_two(x, residual, weight, bias):
        total = x + residual  # the same bits: the kernel too rounds the sum before it takes the norm
        return row_norm(total, weight, bias, rule, shape, owner), total
    count, dim = vector(owner, x, weight, bias, rule, shape)
    check.floating(owner, residual, "residual")
    check.shape(owner, "residual", residual, x.shape, x)
    if type(x) is not Tensor and sharded.is_sharded(x):
        joined = _by_parts(owner, x, residual, weight, bias, rule, count)
        if joined is not None:
            return joined
    but = None if x.dtype == residual.dtype else f"x is {x.dtype} and residual {residual.dtype}"
    against = lambda: but or rounding(rule, x)  # noqa: E731
    if eager.runs_formula("add_row_norm", against, x, residual, weight, bias, kind=(rule, count)):
        check.floating(owner, x)
        total = (x + residual).to(x.dtype)
        return row_formula(total, weight, bias, rule, count), total
    return _add_by_kernel(x, residual, weight, bias, rule, count, dim)


def _add_by_kernel(x: Tensor, residual: Tensor, weight, bias, rule: Row, count: int, dim: int) -> tuple[Tensor, Tensor]:
    alike = x.stride() == residual.stride()
    x, restore = (x, None) if x.is_contiguous() else _arrange(x, count)
    if restore is not None:
        residual = _Packed.apply(residual, restore) if alike else residual.contiguous()
    weight, bias = eager.pack(weight), eager.pack(bias)
    plan = rule.plan(dim, x, weight, bias)
    if eager.needs_grad(x, residual, weight, bias):
        y, total = _AddRowNorm.apply(x, residual, weight, bias, plan, rule, count, dim)
    else:
        y, total = _add_forward(x, residual, weight, bias, plan, dim)
    return (y, total) if restore is None else (restore(y), restore(total))


def _in_two(x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether an addition and a short call of the norm give the bits of one call that does both, in less time."""
    small = type(x) is type(residual) is Tensor and x.is_cpu and x.numel() <= SMALL
    if not small or (x.dtype, x.shape) != (residual.dtype, residual.shape):
        return False
    if torch.is_grad_enabled():  # half precision would round a sum of gradients twice
        quick = eager.node is not None and x.dtype not in HALVES
    else:
        quick = eager.node is not None or eager.short_row is not None
    kernels_take_all = quick and paths.watching() is None and eager.refusal(x, residual, weight, bias) is None
    return kernels_take_all and _holds(x) and _holds(residual)


def _holds(x: Tensor) -> bool:
    """Whether a tensor's memory is there, which torch's addition would read without asking."""
    return x.is_contiguous() and x.untyped_storage().nbytes() >= (x.storage_offset() + x.numel()) * x.itemsize


def _by_parts(owner, x, residual, weight, bias, rule: Row, count: int) -> tuple[Tensor, Tensor] | None:
    """A DTensor's result and x + residual, each process working on its part; None where the formula must see it all."""
    part, first = sharded.parts(owner, x), x.ndim - count
    if part is None:
        return None
    along = part.along(range(first, x.ndim))
    if along and (rule.statistic == "maximum" or rounding(rule, x) is not None):
        return None  # it is no sum, or one of rounded terms
    weight, bias = (part.parameter(owner, n, v, first) for n, v in (("weight", weight), ("bias", bias)))
    total = local = part.local
    if residual is not None:
        residual = part.alike(owner, "residual", residual)
        if not along:
            y, total = add_row_norm(local, residual, weight, bias, rule, tuple(local.shape[first:]), owner)
            return part.joined(y), part.joined(total)
        total = (local + residual).to(local.dtype)
    if along:
        y = _over_processes(part, total, weight, bias, rule, first, along)
    else:
        y = row_norm(local, weight, bias, rule, tuple(local.shape[first:]), owner)
    return part.joined(y), part.joined(total) if residual is not None else total


def _over_processes(part: sharded.Parts, x, weight, bias, rule: Row, first: int, along: list[int]) -> Tensor:
    """The definition for vectors that lie across processes: the sums that make the statistic are theirs together."""
    if not torch.compiler.is_compiling():
        paths.record("row_norm", "formula", "the entries of a vector lie on several processes")
    axes = tuple(range(first, x.ndim))
    dim = part.size(axes)
    if rule.center and rule.statistic == "absolute":
        z, _, sizes, _ = part.deviations(x, axes)
        s = sizes * dim
    elif rule.center:
        z, s = sharded.centered(part, x, axes, along, dim)
    else:
        z = x.float() if x.dtype in HALVES else x
        counted = z if rule.part is None else z[..., : max(0, rule.part - part.begin[-1])]
        terms = counted.abs() if rule.statistic == "absolute" else counted.square()
        sums = [terms.sum(axes, keepdim=True)]
        if rule.statistic == "zero-sum":
            sums.append(z.sum(axes, keepdim=True))
        s, *rest = sharded.sum_over_mesh(torch.stack(sums).double(), part, along)
        s = s + rest[0].square() if rest else s
    return _gained(z * rule.factor(s, dim).to(z.dtype), x.dtype, weight, bias, rule).to(x.dtype)


@trial.call("row_norm", lambda kind: kind[1])
def _tried(kind: tuple[Row, int], tensors: list) -> Tensor:
    (rule, count), (x, weight, bias) = kind, tensors
    return row_norm(x, weight, bias, rule, tuple(x.shape[-count:]))


@trial.call("add_row_norm", lambda kind: kind[1])
def _tried_with_addition(kind: tuple[Row, int], tensors: list) -> tuple[Tensor, Tensor]:
    (rule, count), (x, residual, weight, bias) = kind, tensors
    return add_row_norm(x, residual, weight, bias, rule, tuple(x.shape[-count:]))


def rounding(rule: Row, x: Tensor) -> str | None:
    """What speaks against a kernel where a rule rounds at steps that the kernels take in float32."""
    stepwise = rule.cast in ("factor", "native") and x.dtype in HALVES
    return f"cast={rule.cast!r} rounds {x.dtype} at every step, which no kernel does" if stepwise else None


def vector(owner: object, x: Tensor, weight: Tensor | None, bias: Tensor | None, rule: Row, shape) -> tuple[int, int]:
    """How many trailing axes a vector has, and how many entries; an error if the tensors do not fit together."""
    if type(x) is Tensor and x.dtype in CODES and (shape is None or len(shape) == 1):
        last = x.shape[-1:]  # the common case, at the least cost
        fits = last and (shape is None or shape == last) and (rule.part is None or rule.part <= last[0])
        if fits and (weight is None or weight.shape == last) and (bias is None or bias.shape == last):
            return 1, last[0]
    return _checked_vector(owner, x, weight, bias, rule, shape)


def _checked_vector(owner, x, weight, bias, rule, shape) -> tuple[int, int]:
    check.floating(owner, x)
    shape = _shape(x, weight, bias) if shape is None else tuple(shape)
    if not shape:
        raise ValueError(f"{check.whose(owner)}: x must have an axis to normalize, but its shape is {tuple(x.shape)}")
    check.ends_in(owner, x, shape)
    if weight is not None and (weight.ndim > 1 or weight.numel() != 1):
        check.shape(owner, "weight", weight, shape)
    if bias is not None:
        check.shape(owner, "bias", bias, shape)
    if rule.part is not None and (len(shape) > 1 or rule.part > shape[0]):
        raise ValueError(
            f"{check.whose(owner)}: part must lie within the one normalized axis, not {rule.part} of {shape}"
        )
    return len(shape), math.prod(shape)


def _shape(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[int, ...]:
    """The axes that make a vector, as weight or bias tell; the last one where neither does."""
    for value in (weight, bias):
        if value is not None and (value.ndim > 1 or value.numel() != 1):
            return tuple(value.shape)
    return tuple(x.shape[-1:])


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
    restore = lambda y: y.permute(order).contiguous().permute(inverse)  # noqa: E731
    return _Packed.apply(x, restore) if eager.needs_grad(x) else x.contiguous(), restore


class _Packed(torch.autograd.Function):
    """A contiguous copy, whose gradient has the strides of what was copied."""

    @staticmethod
    def forward(ctx, x, restore):
        ctx.restore = restore
        return x.contiguous()

    @staticmethod
    def backward(ctx, grad):
        return ctx.restore(grad), None


def _forward(x, weight, bias, plan, dim, stats=None) -> Tensor:
    y = torch.empty_like(x)
    eager.library(x).row_forward(plan, x.numel() // dim, x, None, weight, bias, None, y, stats)
    return y


def _add_forward(x, residual, weight, bias, plan, dim, stats=None) -> tuple[Tensor, Tensor]:
    y, total, residual = torch.empty_like(x), torch.empty_like(x), eager.dense(residual, x)
    eager.library(x).row_forward(plan, x.numel() // dim, x, residual, weight, bias, total, y, stats)
    return y, total


def _backward(x, grad, grad_total, weight, bias, stats, plan, dim, wanted) -> tuple:
    """Gradients of x, weight and bias, in one pass; those not wanted are None."""
    dx = torch.empty_like(x)
    dweight = torch.empty_like(weight) if wanted[0] else None
    dbias = torch.empty_like(bias) if wanted[1] else None
    grad, grad_total = eager.dense(grad, x), None if grad_total is None else eager.dense(grad_total, x)
    rows = x.numel() // dim
    eager.library(x).row_backward(plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias)
    return dx, dweight, dbias


def statistics(x: Tensor, rule: Row, dim: int) -> Tensor:
    """Room for what the backward pass needs to know of each row."""
    each = 3 if rule.center else 2 if rule.statistic == "zero-sum" else 1
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    return torch.empty(x.numel() // dim * each, dtype=kind, device=x.device)


class _RowNorm(torch.autograd.Function):
    """Keeps x and up to three numbers a row; higher derivatives are those of the formula."""

    @staticmethod
    def forward(ctx, x, weight, bias, plan, rule, count, dim):
        stats = statistics(x, rule, dim)
        ctx.save_for_backward(x, weight, bias, stats)
        ctx.about = plan, rule, count, dim
        return _forward(x, weight, bias, plan, dim, stats)

    @staticmethod
    def backward(ctx, grad):
        return (*_pull(ctx.about, ctx.needs_input_grad, grad, *ctx.saved_tensors), None, None, None, None)


def _pull(about, needs, grad, x, weight, bias, stats) -> tuple:
    """Gradients of x, weight and bias, by the kernel or the formula."""
    plan, rule, count, dim = about
    if eager.runs_formula("row_norm backward", eager.derived_again(), grad):
        return eager.differentiate(row_formula, (x, weight, bias), (rule, count), grad, needs)
    plan = rule.plan(dim, x, weight, bias) if plan is None else plan
    return _backward(x, grad, None, weight, bias, stats, plan, dim, needs[1:3])


class _AddRowNorm(torch.autograd.Function):
    """The same after an addition; x and residual have one gradient, made in the same pass."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, plan, rule, count, dim):
        stats = statistics(x, rule, dim)
        y, total = _add_forward(x, residual, weight, bias, plan, dim, stats)
        ctx.save_for_backward(total, weight, bias, stats)
        ctx.about = plan, rule, count, dim
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx, grad, grad_total):
        if grad is None:
            return grad_total, grad_total, None, None, None, None, None, None
        total, weight, bias, stats = ctx.saved_tensors
        plan, rule, count, dim = ctx.about
        needs = ctx.needs_input_grad
        if eager.runs_formula("add_row_norm backward", eager.derived_again(), grad, grad_total):
            grad_mask = (needs[0] or needs[1], *needs[2:4])
            dx, dweight, dbias = eager.differentiate(row_formula, (total, weight, bias), (rule, count), grad, grad_mask)
            dx = dx if grad_total is None or dx is None else dx + grad_total
        else:
            dx, dweight, dbias = _backward(total, grad, grad_total, weight, bias, stats, plan, dim, needs[2:4])
        return dx, dx, dweight, dbias, None, None, None, None


def layer_norm(x: Tensor, shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """As `torch.nn.functional.layer_norm`."""
    return row_norm(x, weight, bias, _rule(True, eps), tuple(shape))


def rms_norm(x: Tensor, shape, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """As `torch.nn.functional.rms_norm`, where an eps of None means 1.2e-7; here eps is always a number."""
    return row_norm(x, weight, None, _rule(False, eps), tuple(shape))


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """`(layer_norm(x + residual), x + residual)` in one pass, over the axes of weight, or the last."""
    return add_row_norm(x, residual, weight, bias, _rule(True, eps))


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """`(rms_norm(x + residual), x + residual)` in one pass, over the axes of weight, or the last."""
    return add_row_norm(x, residual, weight, None, _rule(False, eps))


def _rule(center: bool, eps: float) -> Row:
    """The rule of layer norm or RMS norm; `torch.compile` warns of what is remembered."""
    return Row(center=center, eps=eps) if torch.compiler.is_compiling() else _kept_rule(center, eps)


@lru_cache(maxsize=64)
def _kept_rule(center: bool, eps: float) -> Row:
    return Row(center=center, eps=eps)
