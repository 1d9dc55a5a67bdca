"""The report's pictures, as the plain data and layout that plotly.js draws.

A colour is written ``var(--name)``, with an opacity after it where wanted: the page's style sheet knows the colours,
light and dark. ``meta`` is a variant's place in the plan, by which the page's legend shows and hides it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from normkit.lab.plan import measures
from normkit.lab.plan.findings import Interval, interval
from normkit.lab.plan.measures import EACH
from normkit.lab.report import factor as crossed
from normkit.lab.report import ladder
from normkit.lab.report.history import UNFINISHED, Comparison, Record, number, points
from normkit.lab.report.ranking import DIVERGED, DONE, time_at
from normkit.page import Figure, figure
from normkit.safe import safe

Curve = list[tuple[float, float]]
Curves = Sequence[tuple[Record, Sequence[tuple[float, float]]]]
Series = Mapping[str, Curves]
Merged = list[tuple[float, tuple[float, float, float]]]
Range = tuple[float, float] | None

COLOURS = 7  # in the page's style sheet, beside the baseline's
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot")  # broken, so that what lies below is seen
PALE = 0.4  # the opacity of the baseline's line
WIDE, NARROW = 6, 2.2  # the baseline's line, below all others, and theirs
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "pentagon", "hexagram")
MOST_POINTS, FEW_POINTS, MOST_TICKS = 150, 12, 12
SPAN = "Mean over seeds, and a band that spans them; a seed that diverged is a thin line to a cross."
ZERO_LINE = {"zeroline": True, "zerolinecolor": "var(--ink)", "zerolinewidth": 1.5}  # of an axis of differences
STEADY = 0.1  # the share of a run after which its loss sets the range of the axis


def pictures(comparison: Comparison) -> list[dict[str, Any]]:
    """Return title, caption and figure of every picture for which something was logged."""
    held_out = "held-out loss" if comparison.held_out else "training loss"
    figures = [
        ("Held-out loss", SPAN, curves(comparison, "evals")),
        (
            f"Difference from {comparison.baseline}",
            f"The {held_out} minus that of {comparison.baseline} with the same seed; mean, and a band that spans them.",
            differences(comparison),
        ),
        (
            f"Gap to {comparison.baseline} along the ladder",
            "Mean over seeds with its interval on each rung; dotted, where its line leads on the next two.",
            gaps_along_ladder(comparison),
        ),
        (
            "Crossed choices",
            "The mean over seeds with its interval; where lines are not parallel, a gap depends on the other choice.",
            crossed_means(comparison),
        ),
        ("Training loss", f"{SPAN} A long run is averaged bin by bin.", curves(comparison)),
        ("Time against loss", f"The {held_out} after so many seconds of training.", times(comparison)),
        (
            "Clients",
            "The accuracy of each client on data like its own, from the worst to the best; mean over seeds.",
            of_clients(comparison),
        ),
        ("Learning-rate sensitivity", _search_caption(comparison), rates(comparison)),
        (
            "Gradient norm",
            "Of all parameters, before clipping; mean over seeds.",
            curves(comparison, key="gradient_norm"),
        ),
        *_depth_pictures(comparison),
    ]
    return [{"title": t, "caption": c, "figure": f} for t, c, f in figures if f["data"]]


def _depth_pictures(comparison: Comparison) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Gradients and activations of the blocks, at the start and at the end of training."""
    for what, caption in (
        ("gradient", "Length of the gradient of a block's parameters; mean and span over seeds."),
        ("activation", "Root mean square of a block's output; mean and span over seeds."),
    ):
        for when, index in (("start", 0), ("end", -1)):
            yield f"{what.capitalize()} by depth, {when} of training", caption, depths(comparison, what, index)


def style(comparison: Comparison, variant: str) -> dict[str, Any]:
    """Return a variant's colour, dash, width and symbol; the baseline has the colour of the text, wide and unbroken."""
    place = comparison.variants.index(variant)
    others = [name for name in comparison.variants if name != comparison.baseline]
    if variant == comparison.baseline:
        return {"place": place, "colour": "var(--ink)", "dash": "solid", "width": WIDE, "symbol": "circle-open"}
    turn = others.index(variant)
    dash = DASHES[(turn + turn // COLOURS) % len(DASHES)]
    own = {"colour": f"var(--c{turn % COLOURS})", "symbol": SYMBOLS[turn % len(SYMBOLS)]}
    return {"place": place, "dash": dash, "width": NARROW, **own}


def _below_first(comparison: Comparison, data: list[Figure]) -> list[Figure]:
    """Put the baseline's traces first: what comes later is drawn above."""
    return sorted(data, key=lambda trace: trace["name"] != comparison.baseline)


def curves(comparison: Comparison, which: str = "steps", key: str = "loss") -> Figure:
    """Draw a logged number against the steps."""
    series = {
        name: [(run, points(getattr(run, which), key)) for run in comparison.final_runs(name)]
        for name in comparison.variants
    }
    lines = _lines(comparison, series, "step", key.replace("_", " "), limits(series) if key == "loss" else None)
    if key != "loss":
        lines["layout"]["yaxis"] |= _norms_axis(lines["data"])
    return lines


def differences(comparison: Comparison) -> Figure:
    """Draw how far the loss of a seed lies from the baseline's of the same seed, where both have come through."""
    sound = {name: [run for run in comparison.final_runs(name) if _sound(run)] for name in comparison.variants}
    baseline = {run.seed: dict(run.curve) for run in sound[comparison.baseline]}
    series = {
        name: [(run, _minus(run.curve, baseline[run.seed])) for run in runs if run.seed in baseline]
        for name, runs in sound.items()
        if name != comparison.baseline
    }
    lines = _lines(comparison, series, "step", f"loss minus {comparison.baseline}'s", _symmetric(series))
    lines["layout"]["yaxis"] |= ZERO_LINE
    return lines


def times(comparison: Comparison) -> Figure:
    """Draw the loss against the seconds of training."""
    series = {name: _at_same_times(comparison.final_runs(name)) for name in comparison.variants}
    return _lines(comparison, series, "seconds", "loss", limits(series))


def gaps_along_ladder(comparison: Comparison) -> Figure:
    """Draw the gap to the baseline on each rung, and where its line leads, where there is a ladder."""
    trends = ladder.trends_of(comparison)
    scale = ladder.scale_of(comparison, trends)
    data: list[Figure] = []
    for name, trend in trends.items():
        data += _band_and_mean(comparison, name, _scale(trend.gaps, scale.factor)) if trend.gaps else []
        if trend.ahead:
            ahead = _scale({max(trend.gaps): trend.ends[1], **trend.ahead}, scale.factor)
            *band, line = _band_and_mean(comparison, name, ahead)
            marker = {**line["marker"], "symbol": "circle-open", "size": [0, 7, 7]}
            data += [*band, {**line, "line": {**line["line"], "dash": "dot", "width": 1}, "marker": marker}]
    rungs = sorted({at for trace in data for at in trace["x"]})
    named = {"type": "log", "tickvals": rungs, "ticktext": ladder.names_of(comparison, rungs)}
    measure = measures.of(comparison.settings).name
    y = f"{measure} minus {comparison.baseline}'s{', ' * bool(scale.unit)}{scale.unit.strip()}"
    return figure(data, comparison.settings.get("ladder_of", ""), y, named, ZERO_LINE)


def _scale(intervals: Mapping[float, Interval], factor: float) -> Merged:
    """Return (place, (mean, lowest, highest)) of intervals."""
    reach = {at: 0.0 if math.isnan(one.half) else one.half for at, one in intervals.items()}
    return [
        (at, tuple(factor * value for value in (one.mean, one.mean - reach[at], one.mean + reach[at])))  # type: ignore[misc]
        for at, one in sorted(intervals.items())
    ]


def crossed_means(comparison: Comparison) -> Figure:
    """Draw the mean of each pair of crossed names, a line for each name of the second choice."""
    table = crossed.cells_of(comparison)
    firsts, seconds = (list(dict.fromkeys(key[side] for key in table)) for side in (0, 1))
    data: list[Figure] = []
    for second in seconds:
        means = {firsts.index(key[0]): interval(scores.values()) for key, scores in table.items() if key[1] == second}
        variant = crossed.variants_by_cell(comparison)[firsts[0], second][0]
        traces = _band_and_mean(comparison, variant, _scale({at: m for at, m in means.items() if m.count}, 1.0))
        data += [{**trace, "name": safe(second, "html")} for trace in traces]
    named = {"tickvals": list(range(len(firsts))), "ticktext": [safe(first, "html") for first in firsts]}
    title = (comparison.settings.get("factor") or [""])[0]
    return figure(data, title, measures.of(comparison.settings).name, named, {})


def _of_one_length(sorted_lists: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return lists as long as the longest, shorter ones drawn out between their ends; empty ones are left out."""
    most = max(map(len, sorted_lists), default=0)
    places = np.linspace(0, 1, most)
    return [np.interp(places, np.linspace(0, 1, len(one)), one).tolist() for one in sorted_lists if one]


def of_clients(comparison: Comparison) -> Figure:
    """Draw the clients' accuracies in order, where there are clients."""
    data = []
    for name in comparison.variants:
        measured = [run.evals[-1].get(EACH) or [] for run in comparison.final_runs(name) if run.evals]
        accuracies = [sorted(share for share in shares if share is not None) for shares in measured]
        means = [statistics.fmean(values) for values in zip(*_of_one_length(accuracies), strict=True)]
        look = style(comparison, name)
        line = {
            **_common_to(name, look),
            "x": list(range(1, len(means) + 1)),
            "y": means,
            "mode": "lines+markers",
            "line": {"color": _shade(look), "dash": look["dash"], "width": look["width"]},
            "marker": {"color": look["colour"], "symbol": look["symbol"], "size": 8},
            "hovertemplate": "%{y:.1%}",
        }
        data += [line] if means else []
    return figure(_below_first(comparison, data), "client", "accuracy", {}, {})


def rates(comparison: Comparison) -> Figure:
    """Draw the final loss against the learning rate: the search, and a star at the rate then trained in full."""
    ticks = sorted({run.lr for run in comparison.runs})
    data, seen = [], []
    for name in comparison.variants if len(ticks) > 1 else ():
        runs = comparison.search_runs(name) or comparison.final_runs(name)
        tried = _group((run.lr, run.final()) for run in runs if run.status == DONE)
        line = [(lr, statistics.fmean(losses)) for lr, losses in sorted(tried.items())]
        failed = sorted({run.lr for run in runs if run.status == DIVERGED} - tried.keys())
        seen += [loss for _, loss in line]
        data.append((name, line, failed))
    top = _loss_top(seen)
    traces = [trace for name, line, failed in data for trace in _rate_traces(comparison, name, line, failed, top)]
    named = {"type": "log", "tickvals": ticks, "ticktext": [f"{lr:g}" for lr in ticks]}
    reach = _around(min(seen, default=0.0), top)
    return figure(
        _below_first(comparison, traces), "learning rate", "loss", named, {"range": list(reach)} if reach else {}
    )


def depths(comparison: Comparison, what: str, index: int) -> Figure:
    """Draw a probed norm by depth, at the first or the last probe of every seed that has it."""
    data = []
    for name in comparison.variants:
        having = [
            (run, [probe["layers"] for probe in run.probes if _by_depth(probe["layers"], what)])
            for run in comparison.final_runs(name)
            if _sound(run)
        ]
        probes = [(run, known[index]) for run, known in having if known]
        labels = {layer["depth"]: layer.get("name", "") for _, layers in probes for layer in layers}
        for trace in _bundle(comparison, name, [(run, _by_depth(layers, what)) for run, layers in probes]):
            data.append(
                {**trace, "text": [labels[depth] for depth in trace["x"]], "hovertemplate": "%{y:.4g} · %{text}"}
            )
    deepest = max((depth for trace in data for depth in trace["x"]), default=0)
    whole = {"dtick": max(1, math.ceil(deepest / MOST_TICKS))}
    return figure(_below_first(comparison, data), "depth (block)", f"{what} norm", whole, _norms_axis(data))


def limits(series: Series) -> Range:
    """Return an axis range that a huge first loss, or one variant far off, does not squash.

    From the lowest point to the highest one after the first tenth of a run; but no higher than four times as far
    above the lowest point as the variants commonly lie there.
    """
    sound = [curve for curves in series.values() for run, curve in curves if curve and run.status != DIVERGED]
    endings = [
        _end_of(curve) for curve in sound or [curve for curves in series.values() for _, curve in curves if curve]
    ]
    if not endings:
        return None
    low = min(loss for curve in endings for loss in curve)
    return _around(low, low + _common([max(curve) - low for curve in endings]))


def _symmetric(series: Series) -> Range:
    endings = [_end_of(curve) for curves in series.values() for _, curve in curves if curve]
    reach = _common([max(map(abs, curve)) for curve in endings]) if endings else 0.0
    return _around(-reach, reach)


def _common(highest: Sequence[float]) -> float:
    """Return the greatest of some heights, or four times the common one if that is less."""
    common = statistics.median_low(highest)
    return min(max(highest), 4 * common) if common else max(highest)


def _around(low: float, high: float) -> Range:
    margin = 0.05 * (high - low)
    return (low - margin, high + margin) if high > low else None


def _end_of(curve: Sequence[tuple[float, float]]) -> list[float]:
    begin = curve[0][0] + STEADY * (curve[-1][0] - curve[0][0])
    return [value for at, value in curve if at >= begin]


def _sound(run: Record) -> bool:
    return run.status in (DONE, UNFINISHED)


def _minus(curve: Sequence[tuple[Any, float]], baseline: Mapping[Any, float]) -> Curve:
    return [(step, loss - baseline[step]) for step, loss in curve if step in baseline]


def _at_same_times(runs: Sequence[Record]) -> Curves:
    """Return the loss by seconds, that of all seeds at the times of the finished one that took the shortest."""
    series = [(run, [(time_at(run, step), loss) for step, loss in run.curve if run.steps]) for run in runs]
    ended = [curve for run, curve in series if curve and run.status == DONE]
    if not ended:
        return series
    grid = [at for at, _ in min(ended, key=lambda curve: curve[-1][0])]
    return [(run, curve if run.status == DIVERGED else _interpolate(curve, grid)) for run, curve in series]


def _interpolate(curve: Curve, grid: Sequence[float]) -> Curve:
    import numpy as np

    inside = [at for at in grid if curve and at <= curve[-1][0]]
    if not inside:
        return []
    places, values = zip(*curve, strict=True)
    return list(zip(inside, np.interp(inside, list(places), list(values)).tolist(), strict=True))


def _lines(comparison: Comparison, series: Series, x: str, y: str, reach: Range) -> Figure:
    """Draw every variant's curves; what diverged ends at a cross no higher than the axis."""
    top = reach[1] if reach else math.inf
    data = [trace for name, curves in series.items() for trace in _bundle(comparison, name, curves, top)]
    return figure(_below_first(comparison, data), x, y, {}, {"range": list(reach)} if reach else {})


def _bundle(comparison: Comparison, variant: str, curves: Curves, top: float = math.inf) -> list[Figure]:
    """Return a variant's traces: the band of the seeds that came through, their mean, and each that diverged."""
    size = math.ceil(max((len(curve) for _, curve in curves), default=0) / MOST_POINTS)
    thinned = [(run, _thin(curve, size)) for run, curve in curves if curve]
    diverged = [_divergence(comparison, variant, curve, top) for run, curve in thinned if run.status == DIVERGED]
    merged = _merge([curve for run, curve in thinned if run.status != DIVERGED])
    finished = [{at for at, _ in curve} for run, curve in thinned if run.status == DONE]
    shared = set.intersection(*finished) if finished else {at for at, _ in merged}
    merged = [point for point in merged if point[0] in shared]
    return [*_band_and_mean(comparison, variant, merged), *diverged] if merged else diverged


def _band_and_mean(comparison: Comparison, variant: str, merged: Merged) -> list[Figure]:
    look = style(comparison, variant)
    x = [at for at, _ in merged]
    mean, low, high = ([values[i] for _, values in merged] for i in range(3))
    band = {
        **_common_to(variant, look),
        "x": x + x[::-1],
        "y": high + low[::-1],
        "fill": "toself",
        "mode": "lines",
        "fillcolor": f"{look['colour']} 0.14",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    line = {
        **_common_to(variant, look),
        "x": x,
        "y": mean,
        "mode": "lines+markers" if len(x) <= FEW_POINTS else "lines",
        "line": {"color": _shade(look), "dash": look["dash"], "width": look["width"]},
        "marker": {"color": look["colour"], "symbol": look["symbol"], "size": 7},
        "hovertemplate": "%{y:.4g}",
    }
    return [line] if low == high else [band, line]


def _shade(look: dict[str, Any]) -> str:
    """Return a line's colour; a wide one is paler."""
    return f"{look['colour']} {PALE}" if look["width"] == WIDE else look["colour"]


def _divergence(comparison: Comparison, variant: str, curve: Sequence[tuple[float, float]], top: float) -> Figure:
    """Return a thin line that ends at a cross."""
    look = style(comparison, variant)
    last = len(curve) - 1
    return {
        **_common_to(variant, look),
        "x": [at for at, _ in curve],
        "y": [*(value for _, value in curve[:-1]), min(curve[-1][1], top)],
        "mode": "lines+markers",
        "line": {"color": look["colour"], "dash": look["dash"], "width": 1},
        "marker": _cross(look, [0] * last + [11]),
        "hovertemplate": "%{y:.4g}, diverged",
        "cliponaxis": False,
    }


def _common_to(variant: str, look: dict[str, Any]) -> Figure:
    return {"type": "scatter", "name": safe(variant, "html"), "meta": look["place"], "showlegend": False}


def _cross(look: dict[str, Any], size: Any = 11) -> dict[str, Any]:
    edge = {"width": 2.5, "color": look["colour"]}
    return {"color": look["colour"], "symbol": "x-thin", "size": size, "opacity": 1, "line": edge}


def _rate_traces(
    comparison: Comparison, variant: str, line: Curve, failed: Sequence[float], top: float
) -> list[Figure]:
    look = style(comparison, variant)
    final = {run.lr for run in comparison.final_runs(variant)}
    star = [lr in final for lr, _ in line]
    marker = {
        "color": look["colour"],
        "symbol": ["star" if yes else look["symbol"] for yes in star],
        "size": [15 if yes else 8 for yes in star],
        "opacity": 1,
    }
    tried = {
        **_common_to(variant, look),
        "x": [lr for lr, _ in line],
        "y": [loss for _, loss in line],
        "mode": "lines+markers",
        "line": {"color": _shade(look), "dash": look["dash"], "width": look["width"]},
        "marker": marker,
        "hovertemplate": "%{y:.4g}",
    }
    crosses = {
        **_common_to(variant, look),
        "x": list(failed),
        "y": [top] * len(failed),
        "mode": "markers",
        "marker": _cross(look),
        "hovertemplate": "diverged",
    }
    return [*([tried] if line else []), *([crosses] if failed else [])]


def _search_caption(comparison: Comparison) -> str:
    share = number(comparison.settings.get("search"))
    length = f", each {share:.0%} of a full run" if 0 < share < 1 else ""
    return f"Final loss of the search's trials{length}; a star: then trained in full; a cross at the top: diverged."


def _loss_top(losses: Sequence[float]) -> float:
    """Return a height that shows the losses, but not one that lies far off the common ones."""
    if not losses:
        return 1.0
    low = min(losses)
    return low + _common([loss - low for loss in losses]) or 1.0


def _by_depth(layers: Sequence[dict[str, Any]], what: str) -> Curve:
    return [(layer["depth"], value) for layer in layers if math.isfinite(value := number(layer.get(what)))]


def _merge(curves: Iterable[Sequence[tuple[float, float]]]) -> Merged:
    """Return (place, (mean, lowest, highest)) over the curves that have that place."""
    by_place = _group(point for curve in curves for point in curve)
    return [(at, (statistics.fmean(v), min(v), max(v))) for at, v in sorted(by_place.items())]


def _group(pairs: Iterable[tuple[float, float]]) -> dict[float, list[float]]:
    groups: dict[float, list[float]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _thin(curve: Sequence[tuple[float, float]], size: int) -> Sequence[tuple[float, float]]:
    """Average bins of so many points; a bin stands at its last step."""
    bins = [curve[i : i + size] for i in range(0, len(curve), size)]
    return [(part[-1][0], statistics.fmean(value for _, value in part)) for part in bins]


def _norms_axis(data: Sequence[Figure]) -> Figure:
    """Return an axis for norms: from 0, or logarithmic where they span a power of ten and more."""
    values = [value for trace in data for value in trace["y"] if value > 0]
    if not values or max(values) < 10 * min(values):
        return {"rangemode": "tozero"}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    powers = range(low, high + 1, math.ceil((high - low) / MOST_TICKS))
    ticks = [step * 10.0**power for power in powers for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
