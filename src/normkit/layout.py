"""The axes of a tensor, written as words and read once.

>>> x = Layout("N C *")
>>> x.axes, x.channels, x.shape({"N": 2, "C": 8}, trailing=(6, 7))
(('N', 'C', '*'), 1, (2, 8, 6, 7))
>>> x.fit((32, 64, 56, 56))
Fit(named={'N': 32, 'C': 64}, leading=(), trailing=(56, 56))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

RUNS = ("...", "*", "+")  # any number of axes
SIZED = re.compile(r"(\d*)([A-Za-z_]*)(-\d+)?")


def _normal(shape, generator):
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def _permutation(shape, generator):
    if len(shape) > 1:  # one in each row
        return torch.rand(shape, generator=generator, device="cpu").argsort(-1)
    return torch.randperm(shape[0], generator=generator, device="cpu")


def _definite(shape, generator):
    """Symmetric positive definite matrices, of condition about 10."""
    drawn = _normal(shape, generator)
    return drawn @ drawn.mT / max(shape[-1], 1) + 0.5 * torch.eye(shape[-1], dtype=drawn.dtype)


def _orient(shape, generator):
    """Matrices with a positive determinant: a definite one, and a skew one."""
    drawn = _normal(shape, generator)
    return _definite(shape, generator) + (drawn - drawn.mT) / 2


def _ball(shape, generator):
    """Points whose length is below 1."""
    drawn = _normal(shape, generator)
    return drawn / (1 + drawn.norm(dim=-1, keepdim=True))


def _sphere(shape, generator):
    return torch.nn.functional.normalize(_normal(shape, generator), dim=-1)


def _correlation(shape, generator):
    vectors = _sphere((shape[0], shape[0] + 1), generator)
    return vectors @ vectors.mT


# what the numbers of a tensor are -> how they are drawn
DRAWN: dict[str, Callable[[tuple[int, ...], torch.Generator | None], Tensor]] = {
    "": _normal,
    "bool": lambda shape, generator: torch.rand(shape, generator=generator, device="cpu") < 0.3,
    "correlation": _correlation,
    "mask": lambda shape, generator: (torch.rand(shape, generator=generator, device="cpu") < 0.6).double(),
    "permutation": _permutation,
    "ball": _ball,
    "definite": _definite,
    "frame": lambda shape, generator: torch.linalg.qr(_normal(shape, generator))[0],
    "oriented": _orient,
    "simplex": lambda shape, generator: torch.softmax(_normal(shape, generator), -1),
    "sphere": _sphere,
    "unit": lambda shape, generator: torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu"),
}


class Fit(NamedTuple):
    """What gives a layout a certain shape: the sizes of its named axes, and the axes that its runs stand for."""

    named: dict[str, int]
    leading: tuple[int, ...] = ()
    trailing: tuple[int, ...] = ()


class Layout(str):
    """Axis names with spaces between: ``C`` is the feature count, ``...`` any leading axes, ``*`` any number of
    trailing ones, ``+`` at least one; ``2C``, ``C-1`` and plain numbers are sizes. What the numbers are stands behind
    a colon: ``"N : index 3"``, ``"N : index 1 3"`` (1 or 2), ``"B T : bool"``, ``"N : unit"``, ``"N : permutation"``,
    ``"N C : mask"``.

    A layout is its own text, so it prints and compares as it was written. ``optional``: the input may be left out.
    """

    optional: bool

    def __new__(cls, text: str, optional: bool = False) -> Layout:
        """Read a layout; one that cannot be read is refused."""
        layout = super().__new__(cls, text)
        layout.optional = optional
        if layout.kind and layout.kind.split()[0] not in (*DRAWN, "index"):
            raise ValueError(
                f"the layout {text!r} is of kind {layout.kind!r}; the kinds are index, {', '.join(sorted(DRAWN))[2:]}"
            )
        for axis in layout.axes:
            if axis not in RUNS and not SIZED.fullmatch(axis.partition("/")[0]):
                raise ValueError(
                    f"the layout {text!r} has the axis {axis!r}; an axis is a name, 2C, C-1, a number, ... or *"
                )
        return layout

    def __getnewargs__(self):
        return str(self), self.optional

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(self.partition(":")[0].split())

    @cached_property
    def kind(self) -> str:
        """What the numbers are: an empty string for any real ones."""
        return self.partition(":")[2].strip()

    @cached_property
    def floating(self) -> bool:
        """Whether a tensor of this layout has real numbers."""
        return not self.kind.startswith(("index", "permutation", "bool"))

    def has(self, name: str) -> bool:
        """Whether a size is part of some axis: ``C`` is in ``2C`` and in ``C-1``."""
        return any(_letters(axis) == name for axis in self.axes)

    @cached_property
    def channels(self) -> int | None:
        """Where the features are: 1 of ``N C *``, -1 of ``... C``; None where no axis or no fixed place is theirs."""
        if "C" not in self.axes:
            return None
        at = self.axes.index("C")
        if not set(self.axes[:at]) & set(RUNS):
            return at - len(self.axes) if at == len(self.axes) - 1 else at
        return None if set(self.axes[at:]) & set(RUNS) else at - len(self.axes)

    @cached_property
    def features_last(self) -> bool:
        """Whether the last axis is the features'."""
        return self.axes[-1:] == ("C",)

    @cached_property
    def image(self) -> bool:
        """Whether the features are followed by space, as in images."""
        return self.axes[1:2] == ("C",) and len(self.axes) > 2

    @cached_property
    def samples(self) -> int | None:
        """Where the samples are, or None; leading axes without a name begin with them."""
        if "N" in self.axes:
            return self.axes.index("N")
        return self.axes.index("...") if "..." in self.axes else None

    def shape(
        self, sizes: Mapping[str, int], leading: tuple[int, ...] = (3,), trailing: tuple[int, ...] = (6, 7)
    ) -> tuple[int, ...]:
        """Return the shape that sizes of the named axes give.

        >>> Layout("... C-1").shape({"C": 8}, leading=(2, 3))
        (2, 3, 7)
        """
        shape: list[int] = []
        for axis in self.axes:
            if axis in RUNS:
                shape += leading if axis == "..." else trailing
            else:
                times, name, less = SIZED.fullmatch(axis).groups()  # type: ignore[union-attr]
                if name and name not in sizes:
                    known = ", ".join(sizes)
                    raise ValueError(
                        f"the axis {axis!r} of {self!r} has no size: give one in the card's example, or use {known}"
                    )
                shape.append(int(times or 1) * (sizes[name] if name else 1) + int(less or 0))
        return tuple(shape)

    def draw(self, sizes: Mapping[str, int], generator: torch.Generator | None = None, **options) -> Tensor:
        """Draw a tensor of this layout and kind; ``leading`` and ``trailing`` as for :meth:`shape`, and ``dtype``."""
        dtype = options.pop("dtype", torch.float32)
        shape = self.shape(sizes, **options)
        kind, *below = self.kind.split() or [""]
        if kind == "index":
            low, high = ["0", *below][-2:]
            return torch.randint(int(low), max(int(sizes.get(high, high)), 1), shape, generator=generator, device="cpu")
        drawn = DRAWN[kind](shape, generator)
        return drawn.to(dtype) if drawn.is_floating_point() else drawn

    def fit(self, size: tuple[int, ...]) -> Fit | None:
        """Return what gives a tensor this many numbers along its axes, or None if none has the layout.

        A size of two stands for tokens: ``(256, 768)`` fits ``T N C`` as 32 steps of 8 samples.

        >>> Layout("... C").fit((256, 768))
        Fit(named={'C': 768}, leading=(256,), trailing=())
        >>> Layout("T N C").fit((256, 768))
        Fit(named={'T': 32, 'N': 8, 'C': 768}, leading=(), trailing=())
        """
        axes = list(self.axes)
        if "N" in axes and axes[-1] in ("*", "+"):
            axes = axes[axes.index("N") :]  # an axis before the samples, such as time, keeps its small size
        runs = set(axes) & set(RUNS)
        if len(size) == 2 and len(axes) == 3 and not runs:
            batch = min(8, size[0])
            size = (size[0] // batch, batch, size[1])
        spare = len(size) - sum(axis not in RUNS for axis in axes)
        if spare < ("+" in axes) or (spare > 0 and not runs):
            return None
        return _fit(axes, size, spare)

    def sized(self, at: int, size: int) -> Layout:
        """Return the layout with a number in the place of an axis.

        >>> Layout("N heads T C").sized(-2, 16)
        'N heads 16 C'
        """
        axes = list(self.axes)
        axes[at] = str(size)
        return Layout(" ".join([*axes, ":", self.kind] if self.kind else axes), self.optional)

    def with_fixed(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Put in the sizes that the layout fixes by a number, such as the 3 of colours; counted from the last axis.

        >>> Layout("... 3 H W").with_fixed((32, 64, 56, 56))
        (32, 3, 56, 56)
        """
        own = {-place: int(axis) for place, axis in enumerate(reversed(self.axes), 1) if axis.isdigit()}
        return tuple(own.get(place - len(size), length) for place, length in enumerate(size))


def _letters(axis: str) -> str:
    match = SIZED.fullmatch(axis)
    return match[2] if match else ""


def _fit(axes: list[str], size: tuple[int, ...], spare: int) -> Fit | None:
    named: dict[str, int] = {}
    runs = {"leading": (), "trailing": ()}
    at = 0
    for axis in axes:
        if axis in RUNS:
            runs["leading" if axis == "..." else "trailing"] = size[at : at + spare]  # type: ignore[assignment]
            at += spare
        elif not _solve(axis, size[at], named):
            return None
        else:
            at += 1
    return Fit(named, **runs)


def _solve(axis: str, length: int, named: dict[str, int]) -> bool:
    """Find the size of a named axis from ``2C`` or ``C-1`` having that length."""
    times, name, less = SIZED.fullmatch(axis).groups()  # type: ignore[union-attr]
    whole, rest = divmod(length - int(less or 0), int(times or 1))
    if rest or not name:
        return not rest and whole == 1
    return named.setdefault(name, whole) == whole
