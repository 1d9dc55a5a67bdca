"""What a module is probed with: shapes that it takes, and numbers at which norms that look alike differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 24
WIDE = 2**13  # numbers of a vector of which fewer are drawn
LARGE = 2**18
ODD = 19  # enough of any axis but the vector's, where memory is in another order
FEW = 14  # samples, of which there may be each number below
SEVERAL = [*range(FEW, 66), 127, 128, 255, 256, 512, 1024]  # and further numbers of them


class Shape(NamedTuple):
    """A shape, and the axes that hold the vector: the last ones, or axis 1.

    ``apart``: the last and the third from the end, as where heads lie before tokens.
    """

    sizes: tuple[int, ...]
    last: bool
    extent: tuple[int, ...]
    apart: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of one vector."""
        return (-3, -1) if self.apart else tuple(range(-len(self.extent), 0)) if self.last else (1,)


def shapes(extent: tuple[int, ...]) -> list[Shape]:
    """Return the shapes to be tried: tokens, the vector last, then images, it second, then heads before tokens."""
    rows, sides = (5, range(2, 12)) if is_wide(extent) else (ROWS, (4, 6, 7, 9, 10, 11))
    space = [n for n in sides if n not in extent]
    candidates = [
        Shape((rows, *extent), True, extent),
        Shape((space[1], space[0], *extent), True, extent),
        Shape((2, 3, space[0], *extent), True, extent),
        Shape((1, *extent), True, extent),
    ]
    if len(extent) == 1:
        n, h, w = space[1], space[0], space[2]
        images = ((n, *extent, h, w), (n, *extent, w), (2, *extent, 3, h, w), (1, *extent, w, h), (rows, *extent))
        candidates += [Shape(sizes, False, extent) for sizes in images]
    if len(extent) == 2:
        leads = ((space[1], space[0]), (rows,), (2, 3, space[0]), (1, space[1]))
        candidates += [Shape(between(lead, extent), True, extent, apart=True) for lead in leads]
    return candidates


def between(lead: Sequence[int], extent: Sequence[int]) -> tuple[int, ...]:
    """The sizes of an input whose last axis but those of the vector lies between them.

    >>> between((5, 6), (4, 8))
    (5, 4, 6, 8)
    """
    return (*lead[:-1], extent[0], lead[-1], extent[1])


def is_wide(extent: Sequence[int]) -> bool:
    """Whether a vector is so long that many of them would take long."""
    return math.prod(extent) > WIDE


def larger(shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes of the same vector at other sizes: more rows, longer ones, one alone; as many numbers as are soon done."""
    extent, last, apart = shapes[0].extent, shapes[0].last, shapes[0].apart
    room = LARGE // (2 * math.prod(extent))
    least, short = (9, 5) if is_wide(extent) else (67, 18)
    many = max(min(room, 1031), least)
    if last:
        rank = [(2, 1, 3, 2)] if len(shapes[0].sizes) == 1 + len(extent) else []  # one that takes rows takes any rank
        leads: list[tuple[int, ...]] = [(), (many,), (2, many), (many, 2), *rank]
        sizes: list[tuple[int, ...]] = [
            between(lead, extent) if apart else (*lead, *extent) for lead in leads if lead or not apart
        ]
    else:
        side = max(min(math.isqrt(room), 70), short)
        sizes = [(many, *extent), (2, *extent, many), (2, *extent, side, side + 1), (least, *extent, 2, 3)]
    return [Shape(size, last, extent, apart) for size in sizes]


def smaller(shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes of the same vector and ranks with few samples, each number of them once, and squares."""
    (_, last, extent, apart), ranks = shapes[0], {len(shape.sizes) for shape in shapes}
    if apart:
        sizes = [between(lead, extent) for n in range(1, FEW) for lead in ((n,), (n, n % 3 + 4))]
        squares = [(2, *extent, extent[1]), (extent[1], *extent, extent[1]), (3, extent[0], extent[0], extent[1])]
    elif last:
        sizes = [(n, *lead, *extent) for n in range(1, FEW) for lead in ((), (n % 3 + 4,))]
        squares = [(*extent, *extent), (3, *extent, *extent), (5, 5, *extent)]
    else:
        sizes = [(n, *extent, 4, n % 3 + 4) for n in range(1, FEW)] + [(n, *extent, n % 3 + 4) for n in range(2, FEW)]
        squares = [(2, *extent, *extent), (2, *extent, *extent, *extent), (*extent, *extent, 5), (3, *extent, 6, 6)]
    tried = [size for size in [*sizes, *squares] if len(size) in ranks and math.prod(size) <= LARGE]
    return [Shape(size, last, extent, apart) for size in tried]


def batches(shape: Shape) -> list[Shape]:
    """A shape with further numbers of samples, and with none."""
    variants = [shape._replace(sizes=(n, *shape.sizes[1:])) for n in (0, *SEVERAL)]
    return [shape for shape in variants if math.prod(shape.sizes) <= LARGE]


def at_most(shape: Shape, most: int) -> Shape:
    """The same vector and rank, with no axis longer that is not of the vector.

    >>> at_most(Shape((1031, 5, 4, 40), last=False, extent=(5,)), 9).sizes
    (9, 5, 4, 9)
    """
    own = [axis % len(shape.sizes) for axis in shape.axes]
    return shape._replace(sizes=tuple(n if at in own else min(n, most) for at, n in enumerate(shape.sizes)))


def _rows(x: Tensor, shape: Shape) -> tuple[int, ...]:
    """The shape of one number a vector."""
    sizes = list(x.shape)
    for axis in shape.axes:
        sizes[axis] = 1
    return tuple(sizes)


def _randn(sizes: tuple[int, ...], g: torch.Generator) -> Tensor:
    return torch.randn(sizes, generator=g, dtype=torch.float64)


def _powers(sizes: tuple[int, ...], low: float, high: float, g: torch.Generator) -> Tensor:
    return 10.0 ** (low + (high - low) * torch.rand(sizes, generator=g, dtype=torch.float64))


def _scales(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    return x * _powers(_rows(x, shape), -15, 4, g)


def _samples(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    return x * _powers((len(x), *[1] * (x.ndim - 1)), -6, 3, g)


def _channels(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    sizes = [n if a - x.ndim in shape.axes or a in shape.axes else 1 for a, n in enumerate(x.shape)]
    return x * _powers(tuple(sizes), -3, 2, g)


def _some_zeros(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    keep = torch.rand(x.shape, generator=g) < 0.6
    rows = torch.rand(_rows(x, shape), generator=g) < 0.8
    return x * keep * rows


def _sparse(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    return torch.where(torch.rand(x.shape, generator=g) < 1.5 / max(shape.extent[0], 2), x * 10, 0 * x)


def _outlier(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    return torch.where(torch.rand(x.shape, generator=g) < 0.05, x * 3e4, x)


def _no_numbers(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    return torch.where(torch.rand(x.shape, generator=g) < 0.02, torch.nan, x)


def _infinities(x: Tensor, shape: Shape, g: torch.Generator) -> Tensor:
    rows = torch.rand(_rows(x, shape), generator=g) < 0.2
    return torch.where(rows & (torch.rand(x.shape, generator=g) < 1 / shape.extent[0]), torch.inf, x)


# what the numbers are like -> how they are made of normal ones
NUMBERS: dict[str, Callable[[Tensor, Shape, torch.Generator], Tensor]] = {
    "normal": lambda x, shape, g: x,
    "of many sizes": _scales,
    "samples of many sizes": _samples,
    "channels of many sizes": _channels,
    "at an offset of 1e3": lambda x, shape, g: x + 1e3,
    "of size 1e6": lambda x, shape, g: x * 1e6,
    "of size 1e12": lambda x, shape, g: x * 1e12,
    "of size 1e16": lambda x, shape, g: x * 1e16,
    "of size 1e-7": lambda x, shape, g: x * 1e-7,
    "constant": lambda x, shape, g: torch.zeros_like(x) + _randn(_rows(x, shape), g),
    "with zeros": _some_zeros,
    "zeros": lambda x, shape, g: torch.zeros_like(x),
    "sparse": _sparse,
    "with outliers": _outlier,
    "positive": lambda x, shape, g: x.abs(),
    "whole": lambda x, shape, g: (3 * x).round(),
    "with what is no number": _no_numbers,
    "with infinities": _infinities,
    "negative": lambda x, shape, g: -x.abs() * 30,
}


def draw(shape: Shape, numbers: str = "normal", seed: int = 0) -> Tensor:
    """Draw one input, in float64."""
    return _draw(shape, numbers, seed).clone()  # a module may write into what it is given


@lru_cache(maxsize=128)
def _draw(shape: Shape, numbers: str, seed: int) -> Tensor:
    return NUMBERS[numbers](_normal(shape.sizes, seed), shape, torch.Generator().manual_seed(seed + 1000))


@lru_cache(maxsize=32)
def _normal(sizes: tuple[int, ...], seed: int) -> Tensor:
    return _randn(sizes, torch.Generator().manual_seed(seed))
