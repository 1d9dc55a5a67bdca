"""How a comparison grows: what may be added to one that is there, and what would make it another.

Runs that are there count as long as they are of the plan. What is added must be comparable with them, so what decides
a run's numbers stays. Longer runs are other runs: the learning rate falls along the whole of one, so that no checkpoint
of a shorter one lies on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from normkit.lab.plan import ladder
from normkit.lab.plan.handed import PREFIX, alike, differ, in_words
from normkit.lab.plan.settings import ANY, FOLLOWS, JUDGEMENT, MORE, RUNGS, Settings, fields, full
from normkit.lab.plan.variants import SLOTS, Variant, unique

LENGTHS = ("steps", "seconds")


def join_variants(saved: Sequence[Variant], here: Sequence[Variant], crossed: bool) -> tuple[Variant, ...]:
    """Return the variants that are there, and behind them those that are new.

    crossed: whether the names of the new were made of what varies among them alone. Then one that is there by another
    name is not new, and where the name is another's, it says more.
    """
    known, content = {variant.name: variant for variant in saved}, [replace(variant, name="") for variant in saved]
    variants = list(saved)
    for variant in here:
        other = known.get(variant.name)
        if variant == other or (crossed and replace(variant, name="") in content):
            continue
        if other is not None and not crossed:
            raise ValueError(f"another {_differing(vars(other), vars(variant))}; give it a name of its own")
        variants.append(variant if other is None else _distinguish(variant, other))
    return unique(variants)


def _distinguish(variant: Variant, other: Variant) -> Variant:
    own = [getattr(variant, name) for name in SLOTS if getattr(variant, name) != getattr(other, name)]
    return replace(variant, name="+".join([variant.name, *own]))


def obstacles(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in words what keeps the numbers of a plan from being set beside those of the one that is there."""
    prior, here = (full(Settings, side["settings"]) for side in (old, new))
    free = fields(resuming=ANY)
    free += fields(resuming=FOLLOWS) if any(prior[key] != here[key] for key in LENGTHS) else []
    free += fields(resuming=RUNGS) if ladder.contains(here, prior) else []
    growing = fields(resuming=MORE)
    changed = [
        f"{key}: {_in_words(prior.get(key), here.get(key))}"
        for key in {**prior, **here}
        if key not in free
        and not alike(prior.get(key), here.get(key))
        and not (key in growing and _more(prior[key], here[key]))
    ]
    ours = {variant["name"]: full(Variant, variant) for variant in new["variants"]}
    for variant in (full(Variant, variant) for variant in old["variants"]):
        if variant != ours.get(variant["name"]):
            changed.append(_differing(variant, ours.get(variant["name"])))
    now, known = (dict(entry.rsplit("#", 1) for entry in side["prints"]) for side in (here, prior))
    return changed + [f"{name} is not what it was" for name in known if differ(known[name], now.get(name, ""))]


def _in_words(was: Any, now: Any) -> str:
    if str(was).startswith(PREFIX) and in_words(str(was)) == in_words(str(now)):  # they differ in their prints
        return f"the {in_words(was)} is another than it was"
    return f"{was!r} there, {now!r} here"


def _more(was: Any, now: Any) -> bool:
    return was is not None and now is not None and now > was


def _differing(saved: Mapping[str, Any], here: Mapping[str, Any] | None) -> str:
    if here is None:
        return f"variant {saved['name']!r}: there, but not here"
    own = [f"{key} {saved[key]!r} there, {here[key]!r} here" for key in saved if saved[key] != here[key]]
    return f"variant {saved['name']!r}: {', '.join(own)}"


def additions(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in words what a plan adds to the one that is there."""
    prior, here = (full(Settings, side["settings"]) for side in (old, new))
    known = {variant["name"] for variant in old["variants"]}
    added = [variant["name"] for variant in new["variants"] if variant["name"] not in known]
    lines = [f"added: {', '.join(added)}"] if added else []
    lines += [f"seeds: {here['seeds']} instead of {prior['seeds']}"] if here["seeds"] != prior["seeds"] else []
    rungs, before = (ladder.write_rungs(ladder.rungs(side)) for side in (here, prior))
    lines += [f"rungs of {here['ladder_of']}: {rungs} instead of {before}"] if rungs != before else []
    lines += [f"baseline: {new['baseline']} instead of {old['baseline']}"] if old["baseline"] != new["baseline"] else []
    lines += [
        f"{key}: {here[key]:g} instead of {prior[key]:g}; the learning rate falls along the whole run, so that no "
        "checkpoint of a shorter one can be gone on from: all runs of that length begin anew"
        for key in LENGTHS
        if prior[key] != here[key]
    ]
    judged = fields(role=JUDGEMENT, resuming=ANY)
    return lines + [f"{key}: {here[key]} instead of {prior[key]}" for key in judged if prior[key] != here[key]]
