"""Weights that are drawn far too large or too small."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History
from normkit.watching.rules import saturated_function
from normkit.watching.trials import Trial

LARGE, SMALL = 4.0, 0.05
"""Of the root mean square of a matrix's entries times the root of its inputs: the factor by which it makes independent
inputs larger. torch draws 0.58, Kaiming 1.4, Xavier 1; what is drawn by 0.02 has 0.1 to 1.3 at usual widths."""
SURE = 3.0  # times the logarithm of the number of classes: scores of size four and more begin above it
DRAWN = 1e-3  # by which a gain of one may differ: a step of a usual rate moves it by more
HEAD = "the last matrix is drawn too large"


def _by_depth(history: History) -> float:
    """Return how much larger what the last block gives is than what the first gives."""
    sizes = [float(history.series(name, "rms")[-1]) for name in history.facts["blocks"] if history.names("rms")]
    sizes = [size for size in sizes if math.isfinite(size)]
    return sizes[-1] / max(sizes[0], 1e-30) if len(sizes) > 1 else math.nan


TRIAL = Trial(
    what=lambda history, finding: "the size of what the last block gives, over that of the first,",
    read=lambda history, finding: math.nan if finding.title == HEAD else _by_depth(history),
    ill=lambda ratio: abs(math.log(max(ratio, 1e-30))),
)


def find(history: History) -> Iterator[Finding]:
    """Look at the matrices before the first step, and ask for the median; a start at zero is meant."""
    if not history.steps or not history.facts["group_of"]:
        return  # of a model that is not in training there is no beginning
    gains = {name: gain for name in history.names("radial") if (gain := _gain(history, name)) > 1e-4}
    if len(gains) < 2:
        return
    middle = float(np.median(list(gains.values())))
    if SMALL <= middle <= LARGE:
        yield from _head(history, gains)
        return
    large = middle > LARGE
    if large and any(finding.since == history.steps[0] for finding in saturated_function.find(history)):
        return  # which says it of the place where it does harm
    order = sorted(gains, key=lambda name: -gains[name] if large else gains[name])
    size, more, signals = ("large", "more", "explode") if large else ("small", "less", "vanish")
    yield Finding(
        f"weights are drawn too {size}",
        4.9,
        tuple(order),
        f"at the first step half of {len(gains)} matrices multiply the size of what they are fed by {number(middle)} "
        f"or {more}, {order[0]} by {number(gains[order[0]])}; usual is 0.5 to 2.",
        since=history.steps[0],
        leads=f"signals and gradients that {signals} with depth",
        otherwise=f"a factor of {SMALL:g} to {LARGE:g}",
        margin=middle / LARGE if large else SMALL / middle,
        remedies=(
            Remedy(
                "another start",
                "[nn.init.kaiming_normal_(p) for p in model.parameters() if p.dim() > 1]",
            ),
        ),
    )


def _head(history: History, gains: dict[str, float]) -> Iterator[Finding]:
    """Compare the last matrix with the others where the first loss is far above that of equal probabilities."""
    classes, loss = (float(history.series(LOSS, what)[0]) for what in ("classes", "cross_entropy"))
    rows = {name: shape[0] for name, shape in history.facts["shapes"].items() if len(shape) == 2}
    names = [name for name in gains if rows.get(name) == classes] or [
        name for name in rows if rows[name] == classes and _is_embedding(history, name)
    ]  # one that is the last matrix too
    if not names or not classes > 1 or not loss > SURE * math.log(classes) or not _is_fresh(history):
        return
    head, gain = names[-1], _factor(history, names[-1])
    usual = float(np.median([other for name, other in gains.items() if name != head]))
    if gain <= LARGE * max(usual, 1.0):
        return
    yield Finding(
        HEAD,
        4.9,
        (head,),
        f"at the first step {head} multiplies the size of what it is fed by {number(gain)}, where {number(usual)} is "
        f"the median of the other {len(gains) - 1}; so the first loss is {number(loss)}, and equal probabilities of "
        f"{classes:.0f} classes give {number(math.log(classes))}.",
        since=history.steps[0],
        leads="outputs that are sure and wrong, and steps that only shrink them",
        otherwise=f"a factor of at most {LARGE:g}, or a first loss below {number(SURE * math.log(classes))}",
        margin=min(gain / (LARGE * max(usual, 1.0)), loss / (SURE * math.log(classes))),
        remedies=(Remedy("another start", f'model.get_parameter("{head}").data *= {number(usual / gain)}'),),
    )


def _is_fresh(history: History) -> bool:
    """Whether no gain of a norm has been trained: a trained head may well be sure of other labels."""
    for name, series in history.of("weight").items():
        layer, _, last = name.rpartition(".")
        if history.facts["kinds"].get(layer) == "norm" and last in ("weight", "gain", "scale"):
            size = float(series[0]) / math.sqrt(math.prod(history.facts["shapes"][name]))
            if size != 0 and not abs(size - 1) < DRAWN:
                return False
    return True


def _is_embedding(history: History, name: str) -> bool:
    return history.facts["classes"].get(name.rpartition(".")[0]) == "Embedding"


def _gain(history: History, name: str) -> float:
    if _is_embedding(history, name) or name.rpartition(".")[0] not in history.facts["classes"]:
        return 0.0
    return _factor(history, name)


def _factor(history: History, name: str) -> float:
    """By how much a matrix multiplies the size of independent inputs."""
    size, shape = history.series(name, "weight")[0], history.facts["shapes"].get(name, [1])
    return 0.0 if np.isnan(size) else float(size / math.sqrt(shape[0]))
