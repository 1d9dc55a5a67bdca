"""Rotary position embedding: features are turned in pairs, by an angle that grows with the position.

    (a, b) -> (a cos - b sin, b cos + a sin),        angle = position * base^(-2i / head_dim) for pair i

so that the product of a query and a key depends on how far apart they are. Which features make pair i is the one thing
that models differ in, and a checkpoint of one kind gives nonsense with the other:

    "halves"  features i and i + head_dim / 2      Llama, Qwen, Gemma and most models of Hugging Face
    "pairs"   features 2i and 2i + 1               RoFormer, GPT-J, Cohere, Meta's own Llama code

>>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
>>> rope(x)
tensor([[1.0000, 0.0000],
        [0.5403, 0.8415]])
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check, kernels
from normkit.ops import eager, sharded, trial
from normkit.ops.row import Row, rounding, row_values, statistics, vector

__all__ = [
    "PAIRINGS",
    "Frequencies",
    "Turns",
    "norm_rotate",
    "norm_rotate_formula",
    "rope",
    "rotate",
    "rotate_formula",
    "turns",
    "turns_of",
]

PAIRINGS = ("halves", "pairs")
Turns = tuple[Tensor, Tensor]
LONGEST = 512  # the C code's BLOCK: what it keeps of a row at a time
UNCHANGED = Row()  # stands in for a rule where nothing is normalized


def turns(positions: Tensor, head_dim: int, base: float = 10000.0, dtype: torch.dtype = torch.float32) -> Turns:
    """Cosine and sine of the angles of each position, (..., T, head_dim / 2) each for positions (..., T)."""
    if head_dim % 2:
        raise ValueError(f"turns: head_dim must be even, since features turn in pairs, not {head_dim}")
    order = torch.arange(0, head_dim, 2, device=positions.device, dtype=dtype)
    angles = positions.to(dtype).unsqueeze(-1) * (1.0 / base ** (order / head_dim))  # the bits of transformers
    return angles.cos(), angles.sin()


class Frequencies(NamedTuple):
    """What a position is multiplied by for the angle of each pair, and what cosine and sine are then multiplied by.

    Fewer than head_dim / 2 leave the last pairs as they are.

    >>> cos, sin = Frequencies((1.0,)).turns(torch.tensor([0, 1]), 4)
    >>> cos
    tensor([[1.0000, 1.0000],
            [0.5403, 1.0000]])
    """

    values: tuple[float, ...]
    scale: float = 1.0

    def turns(self, positions: Tensor, head_dim: int, dtype: torch.dtype = torch.float32) -> Turns:
        """Cosine and sine of the angles of each position, (..., T, head_dim / 2) each for positions (..., T)."""
        still = head_dim // 2 - len(self.values)
        if still < 0 or head_dim % 2:
            raise ValueError(f"turns: {len(self.values)} frequencies turn no head of {head_dim} features")
        angles = positions.to(dtype).unsqueeze(-1) * torch.tensor(self.values, dtype=dtype, device=positions.device)
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        return F.pad(cos, (0, still), value=1.0), F.pad(sin, (0, still))


def rope(x: Tensor, base: float = 10000.0, pairing: str = "halves") -> Tensor:
    """Turn x (..., T, head_dim) by its positions 0 .. T - 1; float64 angles for float64 x, else float32 ones."""
    return rotate(x, turns_of(x, base), pairing)


def turns_of(x: Tensor, base: float = 10000.0) -> Turns:
    """Cosine and sine for x (..., T, head_dim) at the positions 0 .. T - 1, in the type of the arithmetic."""
    return turns(torch.arange(x.shape[-2], device=x.device), x.shape[-1], base, _wide(x))


def rotate(x: Tensor, angles: Turns, pairing: str = "halves") -> Tensor:
    """Turn the features of x (..., T, head_dim) by :func:`turns`; half precision is rounded once, at the end.

    Cosine and sine broadcast to (..., T, head_dim / 2), so each sample may have its own positions.
    """
    cos, sin = _fitting("rotate", x, angles, pairing)
    if type(x) is not Tensor and (part := _part("rotate", x)) is not None:
        return part.joined(rotate(part.local, (part.beside(cos), part.beside(sin)), pairing))
    but, kind = _against(x, cos, sin, UNCHANGED), (pairing,)
    if eager.runs_formula("rotate", but, x, cos, sin, kind=kind):
        return rotate_formula(x.to(cos.dtype), cos, sin, pairing).to(x.dtype)
    if eager.needs_grad(x):
        return _Rotate.apply(x, cos, sin, pairing)
    return _forward(x, None, None, cos, sin, None, pairing)


def norm_rotate(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    angles: Turns,
    *,
    rule: Row,
    pairing: str = "halves",
) -> Tensor:
    """Normalize the vectors of x (..., T, head_dim) as :func:`normkit.ops.row_norm` does, then turn them, in one pass.

    For queries and keys as they come from their projection: the heads of x may lie anywhere in memory, only the
    features of a head must be side by side. Half precision is rounded once, at the end (and before the gain, where the
    rule says so).

    >>> x = torch.tensor([[3.0, 4.0]])
    >>> norm_rotate(x, None, None, turns(torch.tensor([0]), 2), rule=Row(eps=1e-5, eps_place="floor"))
    tensor([[0.6000, 0.8000]])
    """
    cos, sin = _fitting("norm_rotate", x, angles, pairing)
    vector("norm_rotate", x, weight, bias, rule, x.shape[-1:])
    if type(x) is not Tensor and (part := _part("norm_rotate", x)) is not None:
        weight = part.parameter("norm_rotate", "weight", weight, x.ndim - 1)
        bias = part.parameter("norm_rotate", "bias", bias, x.ndim - 1)
        own = part.beside(cos), part.beside(sin)
        return part.joined(norm_rotate(part.local, weight, bias, own, rule=rule, pairing=pairing))
    but, kind = _against(x, cos, sin, rule), (rule, pairing)
    if eager.runs_formula("norm_rotate", but, x, weight, bias, cos, sin, kind=kind):
        return norm_rotate_formula(x, weight, bias, cos, sin, rule, pairing)
    weight, bias = eager.pack(weight), eager.pack(bias)
    if eager.needs_grad(x, weight, bias):
        return _NormRotate.apply(x, weight, bias, cos, sin, rule, pairing)
    return _forward(x, weight, bias, cos, sin, rule, pairing)


@trial.call("rotate", lambda kind: 1, along=True)
def _tried(kind: tuple[str], tensors: list) -> Tensor:
    x, cos, sin = tensors
    return rotate(x, (cos, sin), *kind)


@trial.call("norm_rotate", lambda kind: 1, along=True)
def _tried_with_norm(kind: tuple[Row, str], tensors: list) -> Tensor:
    x, weight, bias, cos, sin = tensors
    rule, pairing = kind
    return norm_rotate(x, weight, bias, (cos, sin), rule=rule, pairing=pairing)


def rotate_formula(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """The definition of the turn, all in one type."""
    a, b = _pairs(x, pairing)
    turned = a * cos - b * sin, b * cos + a * sin
    return torch.cat(turned, -1) if pairing == "halves" else torch.stack(turned, -1).reshape(x.shape)


def norm_rotate_formula(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, cos: Tensor, sin: Tensor, rule: Row, pairing: str
) -> Tensor:
    """The definition of norm and turn, the angles in the type of the arithmetic."""
    return rotate_formula(row_values(x, weight, bias, rule), cos, sin, pairing).to(x.dtype)


def _pairs(x: Tensor, pairing: str) -> tuple[Tensor, Tensor]:
    """The first and the second features of all pairs."""
    if pairing == "halves":
        first, second = x.chunk(2, -1)
        return first, second
    return x[..., ::2], x[..., 1::2]


def _wide(x: Tensor) -> torch.dtype:
    """The type of the arithmetic."""
    return torch.promote_types(x.dtype, torch.float32)


def _fitting(owner: str, x: Tensor, angles: Turns, pairing: str) -> Turns:
    """The angles in the type of the arithmetic; an error if something does not fit together."""
    check.choice(owner, "pairing", pairing, PAIRINGS)
    check.floating(owner, x)
    if x.ndim == 0 or x.shape[-1] % 2:
        raise ValueError(f"{owner}: x must end in an even number of features, but its shape is {tuple(x.shape)}")
    whole = isinstance(angles, tuple | list) or (isinstance(angles, Tensor) and angles.dim())
    pair = tuple(angles) if whole else ()
    if len(pair) != 2 or not all(isinstance(angle, Tensor) for angle in pair):
        raise TypeError(f"{owner}: angles must be a pair of tensors, cosine and sine, not {type(angles).__name__}")
    cos, sin = pair
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    if cos.shape != shape[-2:] or sin.shape != shape[-2:]:
        for angle in pair:
            _check_broadcast(owner, angle.shape, shape)
    wide = _wide(x)
    return cos.to(wide), sin.to(wide)


def _check_broadcast(owner: str, have: torch.Size, wanted: tuple[int, ...]) -> None:
    if have[-1:] != wanted[-1:] or not check.broadcastable(have, wanted):
        raise ValueError(f"{owner}: angles of shape {tuple(have)} do not broadcast to {wanted}, a pair's each")


def _part(owner: str, x: Tensor) -> sharded.Parts | None:
    """This process' part of a DTensor whose heads are each on one process."""
    part = sharded.parts(owner, x) if sharded.is_sharded(x) else None  # type: ignore[arg-type]
    return part if part is not None and not part.along((x.ndim - 1,)) else None


def _against(x: Tensor, cos: Tensor, sin: Tensor, rule: Row) -> str | None:
    """What speaks against the C kernel beside what the tensors are."""
    if (stepwise := rounding(rule, x)) is not None:
        return stepwise
    if rule.statistic != "square" or rule.part not in (None, x.shape[-1]):
        return "there is a kernel for norm and turn only where the statistic is the square of all entries"
    if x.shape[-1] > LONGEST:
        return f"a head has more than {LONGEST} features"
    return "the angles need a gradient" if eager.needs_grad(cos, sin) else None


def _forward(x, weight, bias, cos, sin, rule, pairing, stats=None) -> Tensor:
    plan = (rule or UNCHANGED).plan(x.shape[-1], x, weight, bias)
    shape, x, (cos, sin) = x.shape, _rows(x), _angle_rows(x, cos, sin)
    y = torch.empty_like(x)
    turning = _turning(rule, pairing, x, x, y, cos)
    eager.library(x).rotate_forward(plan, turning, x, weight, bias, cos, sin, y, stats)
    return y if y.shape == shape else y.view(shape)


def _backward(x, grad, weight, bias, cos, sin, stats, rule, pairing, wanted) -> tuple:
    """Gradients of x, weight and bias, in one pass; those not wanted are None."""
    plan = rule.plan(x.shape[-1], x, weight, bias)
    shape, x, grad, (cos, sin) = x.shape, _rows(x), _rows(grad), _angle_rows(x, cos, sin)
    dx = torch.empty_like(x)
    dweight = torch.empty_like(weight) if wanted[0] else None
    dbias = torch.empty_like(bias) if wanted[1] else None
    turning = _turning(rule, pairing, x, grad, dx, cos)
    eager.library(x).rotate_backward(plan, turning, x, grad, weight, cos, sin, stats, dx, dweight, dbias)
    return dx.view(shape), dweight, dbias


def _rows(x: Tensor) -> Tensor:
    """x along at most four axes, the last one without gaps."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x if x.ndim <= 4 else x.reshape(-1, *x.shape[-3:])


def _angle_rows(x: Tensor, cos: Tensor, sin: Tensor) -> Turns:
    """The angles as they broadcast to the rows of x, both with the same strides."""
    cos, sin = cos.resolve_neg(), sin.resolve_neg()
    if cos.shape != sin.shape:
        cos, sin = torch.broadcast_tensors(cos, sin)
    if x.ndim > 4:
        shape = (*x.shape[:-1], x.shape[-1] // 2)
        cos, sin = (angle.expand(shape).reshape(-1, *shape[-3:]) for angle in (cos, sin))
    if cos.stride() != sin.stride() or cos.stride(-1) != 1:  # not contiguous(), which may leave them as they are
        cos, sin = (angle.clone(memory_format=torch.contiguous_format) for angle in (cos, sin))
    return cos, sin


def _turning(rule: Row | None, pairing: str, x: Tensor, grad: Tensor, out: Tensor, angle: Tensor) -> bytes:
    """`Turning` of `kernels/cpu/normkit.h`; the rows are walked as x lies in memory."""
    still = [0 if size == 1 else stride for size, stride in zip(angle.shape, angle.stride(), strict=True)]
    numbers = [(1, 1, 1, *x.shape)[-4:-1]]
    numbers += [(0, 0, 0, *strides)[-4:-1] for strides in (x.stride(), grad.stride(), out.stride(), still)]
    if numbers[1][1] < numbers[1][2]:
        numbers = [(a, c, b) for a, b, c in numbers]
    return kernels.TURNING.pack(rule is not None, pairing == "pairs", *itertools.chain(*numbers))


class _Rotate(torch.autograd.Function):
    """The derivative turns back."""

    @staticmethod
    def forward(ctx, x, cos, sin, pairing):
        ctx.save_for_backward(cos, sin)
        ctx.pairing = pairing
        return _forward(x, None, None, cos, sin, None, pairing)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return rotate(grad, (cos, -sin), ctx.pairing), None, None, None


class _NormRotate(torch.autograd.Function):
    """Keeps x and up to three numbers a row; higher derivatives are those of the formula."""

    @staticmethod
    def forward(ctx, x, weight, bias, cos, sin, rule, pairing):
        stats = statistics(x, rule, x.shape[-1])
        ctx.save_for_backward(x, weight, bias, cos, sin, stats)
        ctx.about = rule, pairing
        return _forward(x, weight, bias, cos, sin, rule, pairing, stats)

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias, cos, sin, stats = ctx.saved_tensors
        rule, pairing = ctx.about
        needs = ctx.needs_input_grad[:3]
        if eager.runs_formula("norm_rotate backward", eager.derived_again(), grad):
            rest = cos, sin, rule, pairing
            grads = eager.differentiate(norm_rotate_formula, (x, weight, bias), rest, grad, needs)
        else:
            grads = _backward(x, grad, weight, bias, cos, sin, stats, rule, pairing, needs[1:])
        return (*grads, None, None, None, None)
