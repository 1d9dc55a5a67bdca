"""The pictures of a report without a browser: drawn by matplotlib where it is installed, and saved as SVG or PNG."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normkit.files import beside
from normkit.lab.report import figures
from normkit.lab.report.exports import paint
from normkit.lab.report.history import Comparison
from normkit.optional import at_hand

FORMS = ("svg", "png")
INCHES, SHARP = (7.0, 4.2), 150
DASHES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3))}
DASHES["longdashdot"] = (0, (8, 3, 2, 3))
SYMBOLS = {"circle": "o", "circle-open": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P"}
SYMBOLS |= {"pentagon": "p", "hexagram": "h", "star": "*", "x-thin": "x"}
COLOUR = re.compile(r"rgba\((\d+), (\d+), (\d+), ([\d.]+)\)")


def save(comparison: Comparison, folder: Path, form: str = "svg") -> list[Path]:
    """Write every picture of a comparison into a folder, a file each, and return where they are."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(map(repr, FORMS))}, not {form!r}")
    folder.mkdir(parents=True, exist_ok=True)
    return [_save(one, folder / f"{_file_name(one['title'])}.{form}") for one in figures.pictures(comparison)]


def _save(picture: Mapping[str, Any], path: Path) -> Path:
    with beside(path) as temp_path:
        draw(picture).savefig(temp_path, format=path.suffix[1:], dpi=SHARP)
    return path


def _file_name(title: str) -> str:
    """Turn a title into the name of a file.

    >>> _file_name("Gradient by depth, start of training")
    'gradient-by-depth-start-of-training'
    """
    return re.sub(r"[^\w.=]+", "-", title.lower()).strip("-")


def draw(picture: Mapping[str, Any]) -> Any:
    """Return a picture, with a title and a figure of plotly, as a figure of matplotlib."""
    if at_hand("matplotlib") is None:
        raise ValueError("matplotlib is not installed, which draws pictures for elsewhere: pip install matplotlib")
    chart = paint(picture["figure"])
    figure = at_hand("matplotlib.figure").Figure(INCHES, layout="constrained")
    axes = figure.add_subplot(title=picture["title"])
    for trace in chart["data"]:
        _draw_trace(axes, trace)
    for side, axis in (("x", chart["layout"]["xaxis"]), ("y", chart["layout"]["yaxis"])):
        _set_axis(axes, side, axis)
    axes.grid(color=chart["layout"]["xaxis"]["gridcolor"])
    axes.legend(*_legend(axes), frameon=False)
    return figure


def _draw_trace(axes: Any, trace: Mapping[str, Any]) -> None:
    if trace.get("fill"):
        axes.fill(trace["x"], trace["y"], color=_colour(trace["fillcolor"]), linewidth=0)
        return
    line, marker = trace.get("line", {}), trace["marker"]
    if "lines" in trace["mode"]:
        look = {"color": _colour(line["color"]), "linestyle": DASHES[line["dash"]], "linewidth": 0.75 * line["width"]}
        axes.plot(trace["x"], trace["y"], label=trace["name"], **look)
    if "markers" in trace["mode"]:
        for at, point in enumerate(zip(trace["x"], trace["y"], strict=True)):
            _draw_point(axes, point, {key: _of_point(marker[key], at) for key in ("symbol", "size", "color")})


def _of_point(value: Any, at: int) -> Any:
    return value[at] if isinstance(value, list) else value


def _draw_point(axes: Any, point: tuple[float, float], marker: Mapping[str, Any]) -> None:
    colour = _colour(marker["color"])
    inside = "none" if marker["symbol"].endswith("-open") else colour
    look = {"marker": SYMBOLS[marker["symbol"]], "markersize": 0.75 * marker["size"], "clip_on": False}
    axes.plot(*point, color=colour, markerfacecolor=inside, **look)


def _set_axis(axes: Any, side: str, axis: Mapping[str, Any]) -> None:
    """Give an axis its name, scale, range and ticks; a range is in powers of ten on no axis of ours but a log one."""
    own = {"scale": axis.get("type", "linear"), "label": axis["title"]["text"]}
    axes.set(**{f"{side}{key}": value for key, value in own.items()})
    if "tickvals" in axis:
        getattr(axes, f"set_{side}ticks")(axis["tickvals"], axis["ticktext"])
        axes.minorticks_off()
    if "range" in axis:
        axes.set(**{f"{side}lim": axis["range"]})
    elif axis.get("rangemode") == "tozero":
        axes.set(**{f"{side}lim": (0, None)})
    if axis.get("zeroline"):
        axes.axhline(0, color=axis["zerolinecolor"], linewidth=0.75 * axis["zerolinewidth"], zorder=0.5)


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    """Name every variant once."""
    handles, names = axes.get_legend_handles_labels()
    names = [html.unescape(name).replace("$", r"\$") for name in names]  # between two $ would stand mathematics
    once = dict(zip(reversed(names), reversed(handles), strict=True))
    ordered = list(dict.fromkeys(names))
    return [once[name] for name in ordered], ordered


def _colour(text: str) -> Any:
    """Return a colour of CSS as matplotlib takes it.

    >>> _colour("rgba(255, 0, 51, 0.5)"), _colour("#aabbcc")
    ((1.0, 0.0, 0.2, 0.5), '#aabbcc')
    """
    match = COLOUR.match(text)
    return text if match is None else (*(int(part) / 255 for part in match.groups()[:3]), float(match[4]))
