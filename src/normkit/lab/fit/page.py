"""The report of a fit: bits, learning curves, pairs of data and samples, and whether probabilities are right."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from normkit.lab.fit.table import Observations
from normkit.lab.fit.training import Fitted, Parts, ranks
from normkit.page import Figure, figure, render

COLUMNS, POINTS = 5, 500  # of the pairs plot
COLOURS = 7  # of the page, --c0 and so on
CALIBRATION = (
    "How much of the law lies nearer to its middle than each held-out sample does, in order. Where the law is right "
    "the line is straight; it leaves the dotted band by chance in one of twenty right laws."
)


def page(title: str, data: Observations, parts: Parts, fits: Sequence[Fitted], table: Sequence[Sequence[str]]) -> str:
    """Return the page; a browser fetches nothing else."""
    figures = (
        ("Learning", "Held-out bits, fewest best; dashed: of what is learned from.", curves(fits)),
        ("Calibration", CALIBRATION, calibration(parts, fits)),
        ("Pairs", f"Held-out data in grey, samples of {fits[0].name} in blue.", pairs(data, parts, fits[0])),
    )
    pictures: list[dict[str, Any]] = [
        {"title": name, "caption": caption, "figure": picture} for name, caption, picture in figures
    ]
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return render(template, pictures, {"title": title, "head": table[0], "rows": table[1:]})


def curves(fits: Sequence[Fitted]) -> Figure:
    """Draw bits over steps."""
    traces = []
    for place, one in enumerate(fits):
        steps, learned, held = zip(*one.curve, strict=True)
        traces.append(_line(steps, held, place, one))
        traces.append({**_line(steps, learned, place, one, dash="dash"), "opacity": 0.5, "showlegend": False})
    return _with_legend(figure(traces, "step", "bits per dimension", {}, {}))


def calibration(parts: Parts, fits: Sequence[Fitted]) -> Figure:
    """Draw the ranks of held-out samples against even ones."""
    count = len(parts.test)
    even = ((torch.arange(count) + 0.5) / count).tolist()
    room = 1.36 / count**0.5  # of Kolmogorov and Smirnov, at 5 %
    grey = {"color": "var(--soft)", "dash": "dot"}
    traces: list[Figure] = [
        {"x": even, "y": [min(1, max(0, x + side)) for x in even], "mode": "lines", "line": grey, "showlegend": False}
        for side in (-room, room)
    ]
    for place, one in enumerate(fits):
        traces.append(_line(even, ranks(one.flow, parts.test).sort().values.tolist(), place, one))
    return _with_legend(figure(traces, "even", "found", {}, {}))


def pairs(data: Observations, parts: Parts, best: Fitted) -> Figure:
    """Draw every pair of the first columns, of data and of samples; plotly.js's own such picture needs WebGL."""
    held = _flat(parts.test)
    samples = _flat(best.flow.sample(min(POINTS, 4 * len(held))))
    names = data.names if data.values.ndim == 2 else [f"x{place}" for place in range(held.shape[1])]
    last = held.shape[1] - 1
    traces: list[Figure] = [
        {
            "x": values[:, across].tolist(),
            "y": values[:, up].tolist(),
            "xaxis": f"x{across + 1}",
            "yaxis": f"y{up}",
            "mode": "markers",
            "marker": {"color": colour, "size": 3, "opacity": 0.6},
            "showlegend": False,
        }
        for across in range(last)
        for up in range(across + 1, last + 1)
        for values, colour in ((held, "var(--soft)"), (samples, "var(--c0)"))
    ]
    plot = figure(traces, names[0], names[last and 1], {}, {})
    layout = plot["layout"]
    for place in range(1, last):
        layout[f"xaxis{place + 1}"] = {**layout["xaxis"], "title": {"text": names[place], "standoff": 8}}
        layout[f"yaxis{place + 1}"] = {**layout["yaxis"], "title": {"text": names[place + 1], "standoff": 8}}
    layout |= {"grid": {"rows": max(1, last), "columns": max(1, last), "pattern": "coupled"}, "hovermode": "closest"}
    return plot


def _line(x: Sequence[float], y: Sequence[float], place: int, one: Fitted, **line: Any) -> Figure:
    colour = f"var(--c{place % COLOURS})"
    name = f"{one.name}, seed {one.seed}"
    return {"x": list(x), "y": list(y), "mode": "lines", "name": name, "line": {"color": colour, **line}}


def _with_legend(plot: Figure) -> Figure:
    plot["layout"]["legend"] = {"orientation": "h", "y": 1.15}
    return plot


def _flat(values: Tensor) -> Tensor:
    return values[:POINTS].flatten(1)[:, :COLUMNS]
