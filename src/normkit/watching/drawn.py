"""What can be drawn: a page for a browser, or a static picture for a paper, of the same pictures."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from normkit.files import beside, replace_file
from normkit.optional import library
from normkit.page import Figure, figure, render
from normkit.watching.finding import Finding

STATIC = (".png", ".svg", ".pdf")
WIDE, HIGH, COLUMNS = 5.2, 3.4, 2  # inches of a picture, and how many stand side by side
COLOURS = {"var(--c0)": "C0", "var(--c1)": "C1", "var(--c2)": "C2", "var(--c5)": "C5"}
DASHES = {"dot": ":", "dash": "--"}
SCALE = [[0.0, "var(--card)"], [0.5, "var(--c5)"], [1.0, "var(--c0)"]]


def require_form(name: str, path: str | Path) -> Path:
    """Return a path that ends as a page or a static picture does, or refuse it by the name of the argument."""
    path = Path(path)
    if path.suffix not in ("", ".html", ".htm", *STATIC):
        raise ValueError(f"{name} must end in .html, {', '.join(STATIC)}, not {path.name!r}")
    return path


class Drawn:
    """What has pictures, each a title, a caption and a figure of plotly's; :meth:`plot` writes them."""

    name = "drawn"

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        raise NotImplementedError

    def pictures(self) -> list[dict[str, Any]]:
        """Return title, caption and figure of each picture."""
        raise NotImplementedError

    def findings(self) -> tuple[list[Finding], list[str]]:
        """Return the text above the pictures, and what could not be seen."""
        return [], []

    def plot(self, path: str | Path | None = None) -> Path:
        """Write the pictures, and return where: a page, or a PNG, SVG or PDF by the ending (matplotlib is needed)."""
        path = require_form("path", f"{self.name}.html" if path is None else path)
        if path.suffix in STATIC:
            draw(path, self.pictures())
        else:
            replace_file(path, self.page())
        return path

    def page(self) -> str:
        """Return a page that needs nothing but a browser."""
        title, subtitle = self.heading()
        findings, notes = self.findings()
        content = {"title": title, "subtitle": subtitle, "findings": findings, "notes": notes}
        return render(files(__package__).joinpath("page.html").read_text(encoding="utf-8"), self.pictures(), content)


def line(name: str, x: Any, y: Any, colour: str, dash: str = "solid", spread: Any = None) -> Figure:
    """Return a line with a marker at each point, and bars of a spread where there is one."""
    trace = {
        "type": "scatter",
        "name": name,
        "x": list(x),
        "y": list(y),
        "mode": "lines+markers",
        "line": {"color": colour, "dash": dash, "width": 2.2},
        "marker": {"color": colour, "size": 7},
        "hovertemplate": "%{y:.4g}",
    }
    return trace if spread is None else {**trace, "error_y": {"type": "data", "array": list(spread), "color": colour}}


def grid(kind: str, x: Any, y: Any, z: Any, unit: str = "", **options: Any) -> Figure:
    """Return a heat map or the contours of a table, ``z[y, x]``, with the ``unit`` beside its colours."""
    table = [[float(f"{v:.4g}") if math.isfinite(v) else math.nan for v in row] for row in z]
    bar = {"thickness": 10, "outlinewidth": 0, "title": {"text": unit}}
    return {"type": kind, "x": list(x), "y": list(y), "z": table, "colorscale": SCALE, "colorbar": bar, **options}


def picture(title: str, caption: str, traces: list[Figure], x: str, y: str, across: Any = None, up: Any = None) -> Any:
    """Return a picture of some traces; ``across`` and ``up`` are what its axes have beside the common."""
    return {"title": title, "caption": caption, "figure": figure(traces, x, y, across or {}, up or {})}


def draw(path: Path, pictures: list[dict[str, Any]]) -> None:
    """Write pictures into one static file, side by side."""
    if not pictures:
        raise ValueError(f"there is nothing to draw in {path}")
    library("matplotlib")
    from matplotlib.figure import Figure as Sheet

    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = Sheet(figsize=(WIDE * columns, HIGH * rows), layout="constrained")
    for axes, one in zip(sheet.subplots(rows, columns, squeeze=False).flat, pictures, strict=False):
        _draw_one(sheet, axes, one)
    for axes in sheet.axes[len(pictures) : rows * columns]:
        axes.set_axis_off()
    with beside(path) as temp_path:
        sheet.savefig(temp_path, format=path.suffix[1:], dpi=150)


def _draw_line(sheet: Any, axes: Any, trace: dict[str, Any]) -> None:
    look = {"color": COLOURS.get(trace["line"]["color"]), "ls": DASHES.get(trace["line"]["dash"], "-")}
    spread, x = trace.get("error_y", {}).get("array"), trace["x"]
    axes.errorbar(x, trace["y"], spread, label=trace["name"], marker="o" if len(x) < 40 else None, ms=3.5, **look)


def _draw_field(sheet: Any, axes: Any, trace: dict[str, Any]) -> None:
    x, y, table = trace["x"], trace["y"], np.ma.masked_invalid(np.array(trace["z"], float))
    unit = trace["colorbar"]["title"]["text"]
    if trace["type"] == "contour":
        sheet.colorbar(axes.contourf(x, y, table, levels=24, cmap="Blues"), ax=axes, label=unit)
        return
    ends = {"vmin": trace.get("zmin"), "vmax": trace.get("zmax")}
    sheet.colorbar(
        axes.imshow(table, aspect="auto", cmap="Blues", interpolation="nearest", **ends), ax=axes, label=unit
    )
    for axis, words in ((axes.xaxis, x), (axes.yaxis, y)):
        places = range(0, len(words), -(-len(words) // 12))
        axis.set_ticks(list(places), [str(words[place]) for place in places], fontsize=6)


def _draw_one(sheet: Any, axes: Any, one: dict[str, Any]) -> None:
    layout, traces = one["figure"]["layout"], one["figure"]["data"]
    for trace in traces:
        (_draw_line if trace["type"] == "scatter" else _draw_field)(sheet, axes, trace)
    axes.set(title=one["title"], xlabel=layout["xaxis"]["title"]["text"], ylabel=layout["yaxis"]["title"]["text"])
    axes.title.set_fontsize(10)
    for name, axis in (("xaxis", axes.set_xscale), ("yaxis", axes.set_yscale)):
        if layout[name].get("type") == "log":
            axis("log")
    if "tickvals" in layout["xaxis"]:
        axes.set_xticks(layout["xaxis"]["tickvals"], layout["xaxis"]["ticktext"])
        axes.set_xticks([], minor=True)
    if len(traces) > 1:
        axes.legend(fontsize=7)
    if traces[0]["type"] == "scatter" and isinstance(traces[0]["x"][0], str):
        axes.tick_params(axis="x", labelrotation=60, labelsize=6)
