"""Character alignment: which letters of one script stand for which of another, and text corrupted by that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

Weights = dict[str, dict[str, float]]
LEAST = 0.1  # weight that is kept in a table


@method(
    "character-alignment",
    paper="Script Normalization for Unconventional Writing of Under-Resourced Languages in Bilingual Communities "
    "(Ahmadi and Anastasopoulos, 2023), arXiv 2305.16407",
    shape="",
)
class CharacterAlignment(Text):
    """Align words letter by letter, count which letters stand for which, and write clean text with the wrong ones.

    For a model that restores text which was written in another language's script: it is trained on pairs of corrupted
    and clean text.

    ``align(a, b)`` (Needleman and Wunsch) gives two strings of one length, gaps filled. ``table(sources, targets,
    script_map=())`` gives {character: {character: weight}}: shares over all pairs, rounded to four digits, then 1 more
    for what a line of the map says (source, target, target ..., apart by tabs, ``NULL`` for nothing); weights below 0.1
    go. ``corrupt(text, table, percent, order, picks)`` replaces characters of the text, in the order given, by entries
    of their rows. The n-th gets entry picks[n] modulo the row's length, until more than percent of the different
    characters are; None if nothing was. Replacements chain, and the filler goes at the end. Nothing draws by the
    weights.

    Args:
        match: score of two equal characters.
        mismatch: of two others.
        gap: of a character against nothing.
        filler: the sign for nothing.

    Code points are taken as they come.

    Script Normalization (Ahmadi and Anastasopoulos, 2023), arXiv 2305.16407.
    """

    calls = {
        "align": ("colour", "color"),
        "table": (["colour", "night"], ["color", "nite"], ["c\tk\ts"]),
        "corrupt": ("colour", {"c": ["k"], "u": ["▁", "oo"]}, 60, ["c", "u"], [0, 1]),
    }

    def __init__(self, match: float = 1, mismatch: float = -1, gap: float = -1, filler: str = "▁"):
        self.match = check.number(self, "match", match)
        self.mismatch = check.number(self, "mismatch", mismatch)
        self.gap = check.number(self, "gap", gap)
        if len(filler) != 1:
            raise ValueError(f"CharacterAlignment: filler must be one character, not {filler!r}")
        self.filler = filler

    def align(self, a: str, b: str) -> tuple[str, str]:
        """Return both words, filled to one length."""
        scores, pairs = self._scores(a, b), list[tuple[str, str]]()
        i, j = len(b), len(a)
        while i or j:
            here = scores[i][j]
            if i and j and here == scores[i - 1][j - 1] + self._score(a[j - 1], b[i - 1]):
                i, j = i - 1, j - 1
                pairs.append((a[j], b[i]))
            elif j and (not i or here == scores[i][j - 1] + self.gap):
                j -= 1
                pairs.append((a[j], self.filler))
            else:
                i -= 1
                pairs.append((self.filler, b[i]))
        return "".join(one for one, _ in reversed(pairs)), "".join(other for _, other in reversed(pairs))

    def _scores(self, a: str, b: str) -> list[list[float]]:
        rows = [[self.gap * j for j in range(len(a) + 1)]]
        for i, below in enumerate(b, 1):
            above, row = rows[-1], [self.gap * i]
            for j, letter in enumerate(a, 1):
                row.append(max(above[j - 1] + self._score(letter, below), above[j] + self.gap, row[-1] + self.gap))
            rows.append(row)
        return rows

    def _score(self, one: str, other: str) -> float:
        if one == other:
            return self.match
        return self.gap if self.filler in (one, other) else self.mismatch

    def table(self, sources: Sequence[str], targets: Sequence[str], script_map: Sequence[str] = ()) -> Weights:
        """Return what stands for each character, with its weight."""
        if len(sources) != len(targets):
            raise ValueError(
                f"CharacterAlignment: sources and targets must be of one length, not {len(sources)} and {len(targets)}"
            )
        counts: dict[str, Counter[str]] = {}
        for source, target in zip(sources, targets, strict=True):
            for one, other in zip(*self.align(source, target), strict=True):
                counts.setdefault(one, Counter())[other] += 1
        weights = {one: {o: round(n / row.total(), 4) for o, n in row.items()} for one, row in counts.items()}
        for line in script_map:
            _add(weights, *line.rstrip("\n").split("\t"))
        return {one: {o: w for o, w in row.items() if w >= LEAST} for one, row in weights.items()}

    def corrupt(
        self,
        text: str,
        table: Mapping[str, Sequence[str] | Mapping[str, float]],
        percent: float,
        order: Sequence[str],
        picks: Sequence[int],
    ) -> str | None:
        """Return the text with some of its characters in the other script, or None."""
        check.number(self, "percent", percent, 0.0, 100.0)
        limit = round(len(set(text)) * percent / 100)
        rows = {one: list(row) for one, row in table.items() if row}
        known = [one for one in order if one in set(text) and one in rows][: limit + 1]
        if len(picks) < len(known):
            raise ValueError(f"CharacterAlignment: picks must be at least {len(known)}, not {len(picks)}")
        for one, pick in zip(known, picks, strict=False):
            text = text.replace(one, rows[one][pick % len(rows[one])])
        return text.replace(self.filler, "") if known else None


def _add(weights: Weights, source: str, *targets: str) -> None:
    row = weights.setdefault(source, {})
    for target in filter(None, targets):
        to = "" if target == "NULL" else target
        row[to] = row[to] + 1 if to in row else 1
