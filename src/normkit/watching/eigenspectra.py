"""The spectra of a model's weights: how heavy their tails are, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from normkit.columns import aligned, number_of
from normkit.watching.drawn import Drawn, line, picture
from normkit.watching.finding import number
from normkit.weight.farms import farms

LEAST = 8  # rows and columns: in a smaller matrix there is no tail to measure
ROWS, RATIO = 100, 2.0  # of a window, as the authors have them


class Spectrum(NamedTuple):
    """A weight's exponent alpha, how far its tail is from a power law, and other measures of its spectrum."""

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
        rest = [f"left out, too small: {', '.join(self.left_out)}"] if self.left_out else []
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
    """Measure the spectrum of every matrix and convolution of a model by ``farms``, in windows that fit it.

    >>> found = eigenspectra(nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 4)))
    >>> [row.name for row in found.rows], found.left_out
    (['0.weight'], ('1.weight',))
    """
    rows, left_out = [], []
    for name, p in model.named_parameters():
        if p.dim() not in (2, 4):
            continue
        if min(p.shape[:2]) < LEAST:
            left_out.append(name)
            continue
        window = max(1, min(ROWS, len(p), int(p.shape[1] / RATIO)))
        alpha, distance, largest, _, stable = farms(p.detach().float(), num_row_samples=window, q_ratio=RATIO)
        measured = float(alpha), float(distance), float(largest) ** 0.5, float(stable)
        rows.append(Spectrum(name, tuple(p.shape), *measured))
    return Eigenspectra(tuple(rows), tuple(left_out))
