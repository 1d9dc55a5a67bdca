"""Names and whose they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Scored = list[tuple[str, float]]


class NameIndex:
    """The distinct names of a vocabulary in order, and for each the entries that have it."""

    def __init__(self, vocabulary: Mapping[str, Sequence[str]]):
        self.ids = list(vocabulary)
        owners: dict[str, list[int]] = {}
        for place, names in enumerate(vocabulary.values()):
            for name in dict.fromkeys(names):
                owners.setdefault(name, []).append(place)
        self.names = list(owners)
        self.owners = list(owners.values())

    def shared(self) -> dict[str, list[str]]:
        """The names that several entries have, with their ids."""
        named = zip(self.names, self.owners, strict=True)
        return {name: [self.ids[place] for place in places] for name, places in named if len(places) > 1}


def owned(named: NameIndex, places: Iterable[int], scores: Iterable[float]) -> Scored:
    """Return the entries of names, each with its best score, best first, of equals the earlier in the vocabulary."""
    best: dict[int, float] = {}
    for place, score in zip(places, scores, strict=True):
        for owner in named.owners[place]:
            best[owner] = max(float(score), best.get(owner, -1.0))
    ranked = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(named.ids[owner], score) for owner, score in ranked]
