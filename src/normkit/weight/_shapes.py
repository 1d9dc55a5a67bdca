"""What maps of a weight share: its shape, and the weight as a matrix."""

from __future__ import annotations

from torch import Tensor

from normkit import check


def axis_of(owner: object, dim: int, shape: tuple[int, ...]) -> int:
    """Return an axis of ``shape``, counted from the first."""
    if check.size(owner, "dim", dim, least=0) >= len(shape):
        raise ValueError(f"{type(owner).__name__}: dim must be below {len(shape)}, not {dim}")
    return dim


def matrix(weight: Tensor, dim: int = 0) -> Tensor:
    """Lay a weight out as a matrix whose rows are counted by ``dim``."""
    return (weight.movedim(dim, 0) if dim else weight).flatten(1)


def rows(numbers: Tensor, like: Tensor) -> Tensor:
    """Lay one number a row (the first axis) so that it broadcasts over a weight, in the weight's type."""
    return numbers.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def no_direction(lengths: Tensor, least: float = 0.0) -> str:
    """Why a weight cannot be divided by these lengths, or an empty string: one is ``least`` or below."""
    if not check.readable(lengths) or not (lengths <= least).any():
        return ""
    short = lengths[lengths <= least]
    which = "weight has" if lengths.numel() == 1 else f"{len(short)} of {lengths.numel()} vectors in weight have"
    return f"{which} length {float(short.max()):.3g}, and so no direction"
