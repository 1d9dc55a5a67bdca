"""Gains of norms that weight decay or long steps have eaten."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching import proposals
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

LEFT = 0.35
"""Of a gain's size at the start. A norm whose gain has gone gives what it is fed divided away; gains that training
moves by itself stayed between a half and twice."""
SHARE = 0.5  # of the fall's logarithm, from which on it is decay that has done it
MOMENTS = ("Adam", "NAdam", "RAdam", "RMSprop", "Adamax")  # their decay is part of a gradient whose size they divide by


def find(history: History) -> Iterator[Finding]:
    """Compare the gains of norms with what they were."""
    kinds, shapes, gains = history.facts["kinds"], history.facts["shapes"], {}
    for name, series in history.of("weight").items():
        layer, _, last = name.rpartition(".")
        samples = series[~np.isnan(series)]
        if kinds.get(layer) != "norm" or last not in ("weight", "gain", "scale") or len(samples) < 2:
            continue
        first, now = (value / math.sqrt(math.prod(shapes[name])) for value in (samples[0], samples[-1]))
        if first > 0.1 and now < LEFT * first:
            gains[name] = (first, now)
    order = sorted(gains, key=lambda name: gains[name][1])
    if order:
        first, now = gains[order[0]]
        start = history.series(order[0], "weight")[0]
        decayed = _decay(history, order[0]) >= SHARE * math.log(first / max(now, 1e-30))
        yield Finding(
            "the gains of norms are lost",
            4.1 if decayed else 3.9,
            tuple(order),
            f"the gain of {order[0].rpartition('.')[0]} fell from {number(first)} to {number(now)}; {len(order)} norms "
            "are so.",
            since=history.since_when(order[0], "weight", lambda value: value < LEFT * start),
            leads="layers that are fed nothing",
            otherwise="gains of a half to twice of what they were",
            margin=LEFT * first / max(now, 1e-30),
            cause="" if decayed else "large-updates",
            remedies=_remedies(history, order[0]) if decayed else (),
        )


def _decay(history: History, name: str) -> float:
    """Return the logarithm of how far decay alone would have shrunk a gain in all steps that were seen."""
    groups, group_of = history.facts["groups"], history.facts["group_of"]
    group, rates, steps = groups[group_of[name]] if name in group_of else {}, history.rates(name), history.steps
    decays = rates * group.get("weight_decay", 0.0)
    if group.get("optimizer") in MOMENTS and not group.get("decoupled"):
        weight, gradient = (history.series(name, what) for what in ("weight", "gradient"))
        entries = math.sqrt(math.prod(history.facts["shapes"][name]))
        decays = decays * entries / np.maximum(np.hypot(gradient, group["weight_decay"] * weight), 1e-30)
    if group.get("optimizer") == "SGD":
        decays = decays / max(1 - group.get("momentum", 0.0), 0.01)
    seen = np.isfinite(decays)
    every = np.arange(steps[0], steps[-1])
    return float(np.interp(every, np.array(steps)[seen], decays[seen]).sum()) if seen.any() else 0.0


def _remedies(history: History, name: str) -> tuple[Remedy, ...]:
    """Propose no decay of gains, by the optimizer that there is."""
    groups, group_of, shapes = (history.facts[what] for what in ("groups", "group_of", "shapes"))
    group = groups[group_of[name]]
    alone = all(len(shapes[other]) < 2 for other, at in group_of.items() if at == group_of[name])
    kind, what = group["optimizer"], "no decay of gains"
    if alone:
        line = 'for group in optimizer.param_groups: group["weight_decay"] *= any(p.dim() > 1 for p in group["params"])'
        undecayed = Remedy(what, line)
    elif kind in ("Adam", "AdamW", "SGD"):
        parts = f"nk.param_groups(model, weight_decay={number(group['weight_decay'])})"
        rate = number(proposals.largest_rate(history, name))
        undecayed = Remedy(what, f"optimizer = torch.optim.{kind}({parts}, lr={rate})")
    else:
        undecayed = Remedy(what, f"make {kind} with gains in a group of their own, of weight_decay=0", runs=False)
    to_one = Remedy("a gain that decays to one", "nk.create(name, width, offset=1.0), whose gain is 1 + weight", False)
    return undecayed, to_one
