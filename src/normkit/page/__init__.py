"""A page that needs nothing but a browser: its style, its pictures, and the program that draws them.

What is common to the reports of comparisons and of watched trainings; each has a template of its own, which extends
``base.html`` and fills its block ``main``. A picture is a title, a caption, and a figure of plain data and layout as
plotly.js draws it, in which a colour is written ``var(--name)``, with an opacity after it where wanted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

Figure = dict[str, Any]
SHARED = ("base.html", "grid.html")


def render(template: str, pictures: list[dict[str, Any]], content: Mapping[str, Any]) -> str:
    """Return a page: a template that extends ``base.html``, filled in."""
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    shared = {name: files(__package__).joinpath(name).read_text(encoding="utf-8") for name in SHARED}
    loader = DictLoader({**shared, "page.html": template})
    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=loader)
    return environment.get_template("page.html").render(
        **content,
        pictures=pictures,
        figures=Markup(as_json([picture["figure"] for picture in pictures])),
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
    )


def figure(data: list[Figure], x: str, y: str, across: Figure, up: Figure) -> Figure:
    """Return a figure; ``across`` and ``up`` are what its axes have beside the common."""
    axis = {"gridcolor": "var(--grid)", "linecolor": "var(--line)", "zeroline": False, "automargin": True}
    return {
        "data": data,
        "layout": {
            "xaxis": {**axis, "title": {"text": x, "standoff": 8}, **across},
            "yaxis": {**axis, "title": {"text": y, "standoff": 8}, **up},
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": "var(--ink)"},
            "paper_bgcolor": "var(--card)",
            "plot_bgcolor": "var(--card)",
            "hoverlabel": {"bgcolor": "var(--card)", "font": {"color": "var(--ink)"}},
            "hovermode": "x unified",
            "margin": {"l": 8, "r": 14, "t": 8, "b": 8},
        },
    }


def as_json(value: Any) -> str:
    """Write JSON that may stand inside a script element; plotly.js leaves a gap at null.

    >>> as_json([1.0, math.nan, "</script>"])
    '[1.0,null,"\\\\u003c/script>"]'
    """
    return json.dumps(nan_to_none(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def nan_to_none(value: Any) -> Any:
    """Turn what JSON has no word for, NaN and infinity, into None."""
    if isinstance(value, dict):
        return {key: nan_to_none(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_none(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
