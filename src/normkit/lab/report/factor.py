"""What two crossed choices come to, in numbers and words: how a gap between two names changes with the other choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from normkit.columns import number_of
from normkit.lab.plan import factor, findings
from normkit.lab.plan.factor import FEW, GROWS, SAME, SHRINKS, TURNS, Interaction
from normkit.lab.plan.settings import full
from normkit.lab.plan.variants import Variant
from normkit.lab.report import words
from normkit.lab.report.history import Comparison
from normkit.lab.report.ranking import Row, sound_values
from normkit.lab.report.tables import Column, Line, Section
from normkit.lab.report.words import Scale, chance, join_names, odds


def variants_of(comparison: Comparison) -> list[Variant]:
    """Return the variants of the plan."""
    return [Variant(**full(Variant, variant)) for variant in comparison.plan["variants"]]


def variants_by_cell(comparison: Comparison) -> factor.Cells:
    """Return the variants of each pair of names, nothing where no choices are crossed."""
    crossed = comparison.settings.get("factor")
    return factor.cells(crossed, variants_of(comparison)) if crossed else {}


def cells_of(comparison: Comparison) -> dict[tuple[str, str], dict[int, float]]:
    """Return the numbers by seed of each pair of names."""
    return factor.means(variants_by_cell(comparison), sound_values(comparison))


def reference(comparison: Comparison) -> tuple[str, str]:
    """Return the names that the baseline has of both choices."""
    first, second = comparison.settings["factor"]
    baseline = next(v for v in variants_of(comparison) if v.name == comparison.baseline)
    return getattr(baseline, first), getattr(baseline, second)


def interactions_of(comparison: Comparison) -> list[Interaction]:
    """Return the interactions."""
    cells = cells_of(comparison)
    return factor.interactions(cells, reference(comparison)) if cells else []


def scale_of(rows: Sequence[Row]) -> Scale:
    """Return how gaps are written: those with the other name are from another level than the baseline's."""
    return replace(words.scale_of(rows), bounded=False)


def section(comparison: Comparison, rows: Sequence[Row]) -> Section | None:
    """Return the table, None where no choices are crossed."""
    interactions = interactions_of(comparison)
    if not interactions:
        return None
    scale, (first, second) = scale_of(rows), comparison.settings["factor"]
    before, base = reference(comparison)
    others = list(dict.fromkeys(one.first[1] for one in interactions))
    columns = [
        Column(f"with {before}", lambda line: scale.difference(line.of.before)),
        Column(f"with {others[0] if len(others) == 1 else 'the other'}", lambda line: scale.difference(line.of.after)),
        Column("change", lambda line: scale.difference(line.of.change)),
        Column("finding", lambda line: "failed" if _failed(comparison, line.of) else line.of.word, words=True),
        Column("p", lambda line: chance(line.of.p)),
    ]
    lines = [
        Line(one.second[1] if len(others) == 1 else f"{one.second[1]}, {one.first[1]}", one, look_of(comparison, one))
        for one in interactions
    ]
    return Section(f"Gap to {base}, by {second} and {first}", columns, lines)


def look_of(comparison: Comparison, one: Interaction) -> str:
    """Return the variant whose look an interaction has."""
    return variants_by_cell(comparison)[one.first[1], one.second[1]][0]


def headline(comparison: Comparison) -> str:
    """Say in a line which gaps depend on the other choice."""
    interactions = interactions_of(comparison)
    if all(one.word == FEW for one in interactions):
        return ""
    changes = [one for one in interactions if one.word in (GROWS, SHRINKS, TURNS)]
    if not changes:
        first, second = comparison.settings["factor"]
        return f"No gap between {second}s was found to depend on the {first}"
    first = min(changes, key=lambda one: one.p)
    more = f", and {number_of(len(changes) - 1, 'gap')} more" if len(changes) > 1 else ""
    return f"{_gap(first)} {VERBS[first.word]} from {first.first[0]} to {first.first[1]}{more}"


VERBS = {GROWS: "grows", SHRINKS: "shrinks", TURNS: "turns its sign"}


def sentences(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """Say of each gap how it changes with the other choice."""
    interactions, scale = interactions_of(comparison), scale_of(rows)
    return [_sentence(one, scale, len(interactions), _failed(comparison, one)) for one in interactions]


def _failed(comparison: Comparison, one: Interaction) -> list[str]:
    """Return the variants of an interaction's four cells that have no numbers, as a seed of theirs has failed."""
    by_cell, sound = variants_by_cell(comparison), sound_values(comparison)
    return [name for key in product(one.first, one.second) for name in by_cell.get(key, ()) if name not in sound]


def _gap(one: Interaction) -> str:
    return f"{one.second[1]}'s gap to {one.second[0]}"


def _sentence(one: Interaction, scale: Scale, tests: int, failed: Sequence[str]) -> str:
    if failed:
        on = f"{one.first[0]} and {one.first[1]}"
        return f"Whether {_gap(one)} depends on {on} cannot be seen: {join_names(failed)} failed."
    if one.word == FEW:
        return (
            f"Too few seeds to tell whether {_gap(one)} depends on {one.first[0]} and {one.first[1]}: "
            f"{findings.ENOUGH} of all four must be finished."
        )
    sides = [scale.difference(side._replace(half=float("nan"))) for side in (one.before, one.after)]
    sure = f"{odds(one.p)}, {number_of(one.change.count, 'seed')}"
    size = f"{sides[0]} with {one.first[0]}, {sides[1]} with {one.first[1]}, a change of {scale.difference(one.change)}"
    if one.word != SAME:
        return f"{_gap(one)} {VERBS[one.word]}: {size} ({sure})."
    few, needed = factor.fewest(tests), factor.fewest(tests, paired=True)
    more = f"; from {needed} seeds on gaps are compared seed by seed" if one.change.count < needed else ""
    more = f"; fewer than {few} seeds cannot tell" if one.change.count < few else more
    return f"{_gap(one)} was not found to differ: {size} ({sure}){more}."


def reading(comparison: Comparison) -> list[str]:
    """Say how the interactions are to be read."""
    if not comparison.settings.get("factor"):
        return []
    first, second = comparison.settings["factor"]
    return [
        f"Of {second} and {first}, each gap is taken seed by seed with either {first}. p is how often the means of the "
        "two sides lie as far apart when a seed's two gaps are exchanged at random, or with few seeds all gaps are "
        "dealt at random, corrected for the number of gaps (Holm); the interval of the change is that over seeds, and "
        "not corrected.",
    ]
