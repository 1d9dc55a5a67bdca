"""Weights that have a gradient, and do not move: whole ones, or most entries of those in half precision."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching import proposals
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.store import Sign

RATIO = 1e-7
"""Of a step's length to the weight's: about the resolution of float32. Below it an addition is lost in rounding, and a
million steps would not change a tenth."""
FEWEST = 3  # samples
STILL = 0.6
"""Of a matrix's entries with a gradient, those that a step leaves as they are, for half of all matrices: the sum was
rounded to what it was. Of decoders in bfloat16 that learn as in float32 up to 0.3 are so, of others 0.65 to 0.8; of
float32 none."""
SIGN = Sign("update", RATIO, above=False)
WIDER = Remedy("float32 weights", "model.float()  # with autocast for the speed")


def find(history: History) -> Iterator[Finding]:
    """Look at matrices with a gradient and a learning rate: at whole ones first."""
    whole = [*_whole(history)]
    yield from whole or _rounded(history)


def _whole(history: History) -> Iterator[Finding]:
    shapes, gradient = history.facts["shapes"], history.late("gradient")
    late = {name: value for name, value in history.late("update").items() if len(shapes.get(name, [])) > 1}
    ill = [
        name
        for name, ratio in late.items()
        if ratio < RATIO and gradient.get(name, 0.0) > 0 and not (history.rates(name)[-1:] == 0).any()
    ]
    order = sorted(ill, key=lambda name: late[name])
    if not order or len(history.steps) < 2 or math.isnan(late[order[0]]):
        return
    rate = float(history.rates(order[0])[-1])
    better = min(1e-3, 1e-3 * rate / max(late[order[0]], 1e-30))
    higher = [Remedy("a higher learning rate", proposals.set_rate(better))] if better > rate else []
    dtypes = history.facts.get("dtypes_of", {})
    half = any(dtypes.get(name, "float32") not in ("float32", "float64") for name in order)
    wider = [WIDER] if half else []
    yield Finding(
        "weights do not move",
        3.5,
        tuple(order),
        f"a step changes {order[0]} by {number(late[order[0]])} of its length at a learning rate of {number(rate)}, "
        f"though it has a gradient; {len(order)} of {len(late)} matrices are so.",
        since=history.since(order[0], SIGN),
        leads="a training that costs time and changes nothing",
        otherwise=f"steps of more than {RATIO:g} of the weight; a thousandth is usual",
        margin=RATIO / max(late[order[0]], 1e-30),
        remedies=(*higher, *wider),
    )


def _rounded(history: History) -> Iterator[Finding]:
    """Look at the middle of all samples: in a warm-up, and where a rate has fallen to nothing, steps are lost too."""
    shapes, still = history.facts["shapes"], history.of("still")
    matrices = {name: series for name, series in still.items() if len(shapes.get(name, [])) > 1}
    shares = {name: float(np.nanmedian(series)) for name, series in matrices.items() if not np.isnan(series).all()}
    if len(history.steps) < FEWEST or not shares or np.median([*shares.values()]) <= STILL:
        return
    order = sorted((name for name, share in shares.items() if share > STILL), key=lambda name: -shares[name])
    worst, dtype = order[0], history.facts["dtypes_of"][order[0]]
    yield Finding(
        "steps are lost in rounding",
        3.8,
        tuple(order),
        f"a step leaves {shares[worst]:.0%} of the entries of {worst} that have a gradient as they are: it is smaller "
        f"than what {dtype} can add to them; {len(order)} of {len(shares)} matrices are so.",
        since=history.steps[0],
        leads="weights that small steps do not move, and a loss that stays above that of float32 weights",
        otherwise=f"at most {STILL:.0%} of the entries; none of float32 weights",
        margin=shares[worst] / STILL,
        remedies=(WIDER,),
    )
