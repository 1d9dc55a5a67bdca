"""Candidates of mistyped country names from two sources, and from both."""

from __future__ import annotations

import random

import normkit as nk
from normkit.text import samples
from normkit.text.candidates.alias_normalization import fold, ratio

TOP, MENTIONS, ERRORS = 64, 120, 12


def task(seed: int) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Countries with their names, some of the names with many typing errors, and whose they are."""
    names = {id: list(own) for id, own in samples.countries(seed).vocabulary.items()}
    generator = random.Random(seed)
    pairs = generator.sample([(name, id) for id, own in names.items() for name in own], MENTIONS)
    return names, [samples.mistype(name, generator, ERRORS) for name, _ in pairs], [id for _, id in pairs]


def by_triples(names: dict[str, list[str]], mentions: list[str]) -> list[list[tuple[str, float]]]:
    """Candidates that share triples of letters."""
    return nk.NgramCandidates(k=3 * TOP, min_df=1)(names, mentions)


def by_letters(names: dict[str, list[str]], mentions: list[str]) -> list[list[tuple[str, float]]]:
    """Candidates with a long common subsequence."""
    folded = {id: [fold(name) for name in own] for id, own in names.items()}
    scored = [[(id, max(ratio(fold(m), name) for name in own)) for id, own in folded.items()] for m in mentions]
    return [sorted(own, key=lambda pair: -pair[1])[:TOP] for own in scored]


def recall(lists: list[list[str]], gold: list[str]) -> float:
    """The share of mentions whose country is among the first candidates."""
    return sum(id in own[:TOP] for own, id in zip(lists, gold, strict=True)) / len(gold)


def recalls(seed: int, copies: bool = False) -> dict[str, float]:
    """The recall of each source and of both; with copies the second source is the first again."""
    names, mentions, gold = task(seed)
    parts = {"triples": by_triples(names, mentions)}
    parts["others"] = parts["triples"] if copies else by_letters(names, mentions)
    ensemble = nk.CandidateEnsemble({name: {"k": TOP} for name in parts})
    joined = [
        [id for id, _, _ in ensemble(dict(zip(parts, own, strict=True)), TOP)]
        for own in zip(*parts.values(), strict=True)
    ]
    alone = {name: recall([[id for id, _ in own] for own in rankings], gold) for name, rankings in parts.items()}
    return {**alone, "both": recall(joined, gold)}
