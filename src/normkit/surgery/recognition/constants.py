"""The constants of a candidate that was not refuted: an eps, a momentum, the rounding of half precision."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from normkit.surgery.recognition import solve
from normkit.surgery.recognition.candidates import Candidate
from normkit.surgery.recognition.halves import HALVES, OTHER_BITS, Half, half, in_half
from normkit.surgery.recognition.inputs import Shape
from normkit.surgery.recognition.pair import Differs
from normkit.surgery.recognition.probe import SMALL, Probe
from normkit.surgery.recognition.specimen import Specimen, carry

LIKELY = 5e-3  # a candidate whose constants are still unknown may be this far off where they hardly matter
NEAR = 1e-4  # and this far, where the constants are only stabilizers
SURE = 3e-5


def find_constants(probe: Probe, candidate: Candidate, carried: Mapping[str, str]) -> dict[str, Any]:
    """The constants, as they would be written; what the module itself holds is tried first."""
    held = [getattr(probe.module, name, None) for name in ("eps", "variance_epsilon", "epsilon", "norm_eps")]
    fits: dict[str, Any] = {}

    def far(name: str, value: float, bound: float) -> float:
        return probe.far(candidate, carried, {**fits, name: value}, SMALL, bound)

    for name in candidate.constants:
        sure = next((value for value in held if isinstance(value, float) and far(name, value, SURE) < SURE), None)
        fits[name] = _write(functools.partial(far, name), _units(candidate, probe)) if sure is None else sure
    if probe.far(candidate, carried, fits, SMALL, LIKELY) > LIKELY:
        raise Differs("no constants explain what it makes of small numbers")
    return fits


def _units(candidate: Candidate, probe: Probe) -> tuple[float, ...]:
    """What a person may have written a constant in: a least length also as a least root mean square."""
    entries = math.prod(probe.shapes[0].extent)
    return (1.0, math.sqrt(entries)) if candidate.arguments.get("eps_floor") else (1.0,)


def _write(far: Callable[[float, float], float], units: Sequence[float]) -> float:
    at = solve.smallest(far)
    limit = max(2 * far(at, math.inf), SURE)
    plain = [number * unit for unit in units for number in solve.plain_numbers(at / unit)]
    return next(value for value in [*plain, at] if far(value, limit) <= limit)


def momentum(
    probe: Probe, candidate: Candidate, carried: Mapping[str, str], solved: Mapping[str, Any]
) -> dict[str, Any]:
    """The share of the new batch in running estimates, from how far one call moves them."""
    learned = dict(candidate.build().named_parameters())
    kept = [(ours, theirs) for ours, theirs in carried.items() if ours not in learned]
    if "momentum" not in candidate.card.signature.parameters or not kept or True not in probe.modes:
        return {}
    theirs = Specimen(probe.module, probe.exact, seed=1).train(True)
    ours = Specimen.of(candidate.build(**solved, momentum=1.0)).train(True)
    carry(ours.tensors, theirs.tensors, carried)
    before = {name: theirs.tensors[name].double().clone() for _, name in kept}
    inputs, _ = probe.answers[True]["normal"]
    with torch.no_grad():
        theirs(*[t.to(probe.exact) for t in inputs])
        ours(*inputs)
    name, source = kept[0]
    step = theirs.tensors[source].double().reshape(-1) - before[source].reshape(-1)
    whole = ours.tensors[name].reshape(-1) - before[source].reshape(-1)
    share = float((step / whole).median())
    if not 0 <= share <= 1:
        raise Differs(f"{source} moves by {share:.3g} of a batch")
    averages = getattr(probe.module, "momentum", 0) is None
    near = [number for number in solve.plain_numbers(share) if math.isclose(number, share, rel_tol=1e-4)]
    return {"momentum": None if averages else [*near, share][0]}


def choose_rounding(
    probe: Probe, candidate: Candidate, arguments: dict[str, Any], carried: Mapping[str, str]
) -> tuple[dict[str, Any], list[Half]]:
    """Where the method can round half precision in several ways, the one that gives their bits."""
    casts = candidate.card.dialects.get("cast", ())
    ways = [{**arguments, "cast": cast} for cast in casts] or [arguments]
    tried = []
    for way in ways:
        halves = _halves(probe, Candidate(candidate.card, way), carried, probe.shapes[0], HALVES)
        tried.append((sum(h.other for h in halves), way, halves))
    _, way, halves = min(tried, key=lambda one: one[0])
    best = Candidate(candidate.card, way)
    for h in halves:
        if h.other > OTHER_BITS and not h.rounded:
            raise Differs(f"in {str(h.dtype)[6:]} it is {h.units:.3g} units off what it is in float64")
        in_half(probe.module, best.build(), carried, probe.shapes[0], probe.further, h)
    _check_other_shape(probe, best, carried, halves)
    return way, halves


def _halves(
    probe: Probe, candidate: Candidate, carried: Mapping[str, str], shape: Shape, dtypes: Sequence[torch.dtype]
) -> list[Half]:
    """What comes of half precision at a shape, in each type that both go in."""
    explained, names = probe.explanation(candidate, carried)
    tries = (half(probe.whole, explained, names, shape, probe.further, dtype) for dtype in dtypes)
    return [one for one in tries if one is not None]


def _check_other_shape(probe: Probe, candidate: Candidate, carried: Mapping[str, str], halves: Sequence[Half]) -> None:
    """Refuse a candidate whose bits are theirs at the first shape, and at the one with most axes not."""
    other = max(probe.shapes, key=lambda shape: len(shape.sizes))
    exact = [h for h in halves if h.other <= OTHER_BITS and other is not probe.shapes[0]]
    for h in exact:  # one that rounds at every step loses as much as its numbers make it lose
        for again in _halves(probe, candidate, carried, other, [h.dtype]):
            if again.other > h.other + OTHER_BITS:
                raise Differs(f"in {str(h.dtype)[6:]} it is rounded otherwise at shape {other.sizes}")
