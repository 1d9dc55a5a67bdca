"""The spectra of a model's weights: how heavy their tails are, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from normkit.columns import aligned, number_of
from normkit.watching.drawn import Drawn, line, picture
from normkit.watching.finding import number
from normkit.weight.farms import farms

LEAST = 8  # rows and columns: in a smaller matrix there is no tail to measure
ROWS, RATIO = 100, 2.0  # of a window, as the authors have them


class Spectrum(NamedTuple):
    """A weight's exponent alpha, how far its tail is from a power law, its spectral norm and its stable rank."""

    name: str
    shape: tuple[int, ...]
    alpha: float
    distance: float
    spectral: float
    stable_rank: float


@dataclass(frozen=True)
class Eigenspectra(Drawn):
    """A row a weight; printed as a table."""

    rows: tuple[Spectrum, ...]
    left_out: tuple[str, ...] = ()
    name = "eigenspectra"

    def __str__(self) -> str:
        titles = ("weight", "shape", "alpha", "distance", "spectral norm", "stable rank")
        cells = [(r.name, "x".join(map(str, r.shape)), *map(number, r[2:])) for r in self.rows]
        lines = aligned([titles, *cells], numbers=True)
        reason = f"less than {LEAST} rows or columns, or neither two nor four axes"
        rest = [f"left out, {reason}: {', '.join(self.left_out)}"] if self.left_out else []
        return "\n".join([*lines, *rest])

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        return "the spectra of the weights", f"{number_of(len(self.rows), 'weight')}; a smaller alpha is a heavier tail"

    def pictures(self) -> list[dict[str, Any]]:
        """Draw alpha and the stable rank by depth."""
        names = [row.name for row in self.rows]
        across = {"type": "category", "tickfont": {"size": 9}}
        caption = "Of the power law in the upper half of the squared singular values, in windows of one aspect ratio."
        figures = [("Alpha by depth", caption, [row.alpha for row in self.rows], "alpha")]
        caption = "Sum of the squared singular values over the largest."
        figures += [("Stable rank by depth", caption, [row.stable_rank for row in self.rows], "stable rank")]
        return [
            picture(title, text, [line(y, names, values, "var(--c0)")], "weight", y, across)
            for title, text, values, y in figures
        ]


def eigenspectra(model: nn.Module) -> Eigenspectra:
    """Measure the spectrum of every matrix and two-dimensional convolution of a model.

    Alpha and the distance are those of ``farms``, in windows that fit the weight; the spectral norm and the stable rank
    are those of the whole weight, of a convolution as a matrix (out, in * kh * kw).

    >>> found = eigenspectra(nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 4)))
    >>> [row.name for row in found.rows], found.left_out
    (['0.weight'], ('1.weight',))
    """
    rows, left_out = [], []
    for name, p in model.named_parameters():
        if p.dim() < 2:
            continue
        if p.dim() not in (2, 4) or min(p.shape[:2]) < LEAST:
            left_out.append(name)
            continue
        window = max(1, min(ROWS, len(p), int(p.shape[1] / RATIO)))
        wide = p.detach().float()
        alpha, distance, *_ = map(float, farms(wide, num_row_samples=window, q_ratio=RATIO))
        squares = torch.linalg.svdvals(wide.flatten(1)).square()
        stable_rank = float(squares.sum() / squares[0])
        rows.append(Spectrum(name, tuple(p.shape), alpha, distance, float(squares[0].sqrt()), stable_rank))
    return Eigenspectra(tuple(rows), tuple(left_out))
