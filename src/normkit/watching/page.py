"""The pictures of a watched training: heat maps of layer against step, and profiles by depth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from normkit.watching.drawn import grid, line, picture
from normkit.watching.history import History, late_median

MAPS = {
    "rms": ("Size of what layers give", "Root mean square of the output, log10."),
    "largest": ("Largest value", "Of the output, log10."),
    "dead": ("Dead channels", "The share that is zero for all samples of a batch."),
    "saturated": ("Saturation", "The share of entries where a bounded function is flat."),
    "cosine": ("Cosine of input and output", "Of blocks: at 1 a block does nothing."),
    "entropy": ("Attention entropy", "The least of a layer's heads, as a share of the largest that there can be."),
    "gradient": ("Gradient", "Length of a parameter's gradient, log10."),
    "update": ("Update over weight", "Length of a step over that of the weight, log10."),
    "stable_rank": ("Stable rank", "Sum of the squared singular values of a matrix over the largest, log10."),
}
PLAIN = ("dead", "saturated", "cosine", "entropy")
PROFILES = ("rms", "largest", "kurtosis", "cosine", "alike")
MOST = 80  # layers of one heat map; of more, evenly chosen ones


def pictures(history: History) -> list[dict[str, Any]]:
    """Return title, caption and figure of everything that was read."""
    profiles = [_profile(history, what) for what in PROFILES]
    profiles += [_map(history, what, *words) for what, words in MAPS.items()]
    return [picture for picture in profiles if picture is not None]


def _map(history: History, what: str, title: str, caption: str) -> dict[str, Any] | None:
    names = [name for name in history.names(what) if not name.endswith("bias")]
    names = names[:: -(-len(names) // MOST) or 1]
    if not names:
        return None
    table = np.array([history.series(name, what) for name in names])
    if what not in PLAIN:
        table = np.log10(np.where(table > 0, table, math.nan))
    trace = grid(
        "heatmap",
        [str(step) for step in history.steps],
        [name or "model" for name in names],
        table,
        hovertemplate="%{y} · step %{x}: %{z:.3g}<extra></extra>",
        **({"zmin": 0, "zmax": 1} if what in PLAIN else {"unit": "log10"}),
    )
    up = {"autorange": "reversed", "tickfont": {"size": 9}, "type": "category"}
    one = picture(title, caption, [trace], "step", "", {"type": "category", "nticks": 10}, up)
    one["figure"]["layout"]["hovermode"] = "closest"
    return one


def _profile(history: History, what: str) -> dict[str, Any] | None:
    blocks = [name for name in history.facts["blocks"] if history.was_read(name, what).any()]
    if len(blocks) < 2:
        return None
    series = [history.series(name, what) for name in blocks]
    first = [float(one[~np.isnan(one)][0]) if (~np.isnan(one)).any() else math.nan for one in series]
    late = [late_median(one) for one in series]
    traces = [
        line("first sample", blocks, first, "var(--c1)", "dot"),
        line("last", blocks, late, "var(--c0)"),
    ]
    title = {"rms": "Size by depth", "largest": "Largest value by depth", "kurtosis": "Kurtosis by depth"}
    title |= {"cosine": "What blocks change, by depth", "alike": "How alike tokens are, by depth"}
    across = {"type": "category", "tickfont": {"size": 9}}
    caption = f"{what} of what each block gives."
    profile = picture(title[what], caption, traces, "block", what, across, {"rangemode": "tozero"})
    profile["figure"]["layout"]["legend"] = {"orientation": "h", "y": 1.1}
    return profile
