"""The report of a fit: bits, learning curves, pairs of data and samples, and whether probabilities are right."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from normkit.lab.fit.table import Data
from normkit.lab.fit.training import Fitted, Parts, ranks

COLUMNS, POINTS = 5, 500  # of the pairs plot
COLOURS = ("#0072b2", "#d55e00", "#008f66", "#b8508f", "#a97400", "#3d9fd6", "#7a4fc4")
CALIBRATION = (
    "How much of the law lies nearer to its middle than each held-out sample does, in order. Where the law is right "
    "the line is straight; it leaves the dotted band by chance in one of twenty right laws."
)


def page(title: str, data: Data, parts: Parts, found: Sequence[Fitted], table: Sequence[Sequence[str]]) -> str:
    """Return the page; a browser fetches nothing else."""
    drawn = [
        ("Learning", "Held-out bits, fewest best; dashed: of what is learned from.", curves(found)),
        ("Calibration", CALIBRATION, calibration(parts, found)),
        ("Pairs", f"Held-out data in grey, samples of {found[0].name} in blue.", pairs(data, parts, found[0])),
    ]
    style = re.search(r"<style>.*?</style>", files("normkit.page").joinpath("base.html").read_text(), re.DOTALL)
    head, *body = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table]
    lines = [f"<thead><tr>{head}</tr></thead>", *(f"<tr>{row}</tr>" for row in body)]
    figures = "".join(
        f"<figure><figcaption><h3>{name}</h3><p>{caption}</p></figcaption>{_drawn(figure, place == 0)}</figure>"
        for place, (name, caption, figure) in enumerate(drawn)
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>{style[0]}'  # type: ignore[index]
        f'</head><body><main><h1>{html.escape(title)}</h1><div class="frame"><table>{"".join(lines)}</table></div>'
        f'<div class="pictures">{figures}</div></main></body></html>'
    )


def _drawn(figure: Any, first: bool) -> str:
    return figure.to_html(full_html=False, include_plotlyjs=first, config={"displaylogo": False})


def curves(found: Sequence[Fitted]) -> Any:
    """Draw bits over steps."""
    from plotly import graph_objects as plot

    figure = plot.Figure(layout={"xaxis": {"title": "step"}, "yaxis": {"title": "bits per dimension"}})
    for place, one in enumerate(found):
        steps, learned, held = zip(*one.curve, strict=True)
        colour = COLOURS[place % len(COLOURS)]
        name = f"{one.name}, seed {one.seed}"
        figure.add_scatter(x=steps, y=held, name=name, line={"color": colour})
        figure.add_scatter(x=steps, y=learned, line={"color": colour, "dash": "dash"}, opacity=0.5, showlegend=False)
    return figure


def calibration(parts: Parts, found: Sequence[Fitted]) -> Any:
    """Draw the ranks of held-out samples against even ones."""
    from plotly import graph_objects as plot

    figure = plot.Figure(layout={"xaxis": {"title": "even"}, "yaxis": {"title": "found"}})
    count = len(parts.test)
    even = ((torch.arange(count) + 0.5) / count).tolist()
    room = 1.36 / count**0.5  # of Kolmogorov and Smirnov, at 5 %
    for side in (-room, room):
        line = {"color": "#888888", "dash": "dot"}
        figure.add_scatter(x=even, y=[min(1, max(0, x + side)) for x in even], line=line, showlegend=False)
    for place, one in enumerate(found):
        colour = COLOURS[place % len(COLOURS)]
        ordered = ranks(one.flow, parts.test).sort().values.tolist()
        figure.add_scatter(x=even, y=ordered, name=f"{one.name}, seed {one.seed}", line={"color": colour})
    return figure


def pairs(data: Data, parts: Parts, best: Fitted) -> Any:
    """Draw every pair of the first columns, of data and of samples."""
    from plotly import graph_objects as plot

    held = _flat(parts.test)
    drawn = _flat(best.flow.sample(min(POINTS, 4 * len(held))))
    names = data.names if data.values.ndim == 2 else [f"x{place}" for place in range(held.shape[1])]
    figure = plot.Figure()
    for values, colour in ((held, "#888888"), (drawn, COLOURS[0])):
        columns = [
            {"label": name, "values": column.tolist()} for name, column in zip(names, values.unbind(1), strict=False)
        ]
        figure.add_splom(dimensions=columns, marker={"color": colour, "size": 3, "opacity": 0.6}, showlegend=False)
    return figure


def _flat(values: Tensor) -> Tensor:
    return values[:POINTS].flatten(1)[:, :COLUMNS]
