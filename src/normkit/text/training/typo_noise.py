"""Typo noise: a word as it is mistyped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from normkit.catalog import method
from normkit.kinds import Text

LETTERS = "abcdefghijklmnopqrstuvwxyz"
KEYS = (  # of each letter those beside it, digits too
    "qwsz vghn xdfv erfcxs wsdfr34 rtgvcd tyhbvf yujnbg ujklo89 uikmnh iolmj opk njk bhjm ilp09 0lo 12wsa 45tfde "
    "qwedxza 56ygfr 78ijhy cfgb qasde zsdc 67uhgt asx`"
)
NEIGHBOURS = dict(zip(LETTERS, KEYS.split(), strict=True))
DRAWS = 5


@method(
    "typo-noise",
    paper="ÚFAL at MultiLexNorm 2021: Improving Multilingual Lexical Normalization by Fine-tuning ByT5 "
    "(Samuel and Straka, 2021)",
    shape="",
)
class TypoNoise(Text):
    """Make one typing error in a word: a letter repeated, left out, swapped, changed for a neighbour's, or put in.

    For pairs of noisy and clean text to pre-train on.

    The first draw says which error: below 0.15 a letter is doubled, below 0.4 left out, below 0.5 swapped with the
    next, below 0.8 changed, else one is put in; the next draws say where and what, mostly a neighbour on the keyboard.
    A letter outside of a-z is not changed; capitals stay.

    ``method(word, draws)``: draws in [0, 1), at least five, used from the first on.

    ÚFAL at MultiLexNorm 2021 (Samuel and Straka, 2021).

    Differs from the authors' code in: an empty word, and one of a letter that would be swapped, come back as they are.
    """

    calls = {"__call__": ("tomorrow", [0.7215, 0.2288, 0.9453, 0.9014, 0.0306])}

    def __call__(self, word: str, draws: Sequence[float]) -> str:
        """Return the word with one error."""
        if len(draws) < DRAWS or not all(0 <= u < 1 for u in draws):
            raise ValueError(f"TypoNoise: draws must be at least {DRAWS} numbers in [0, 1)")
        rest = iter(draws)
        kind = next(rest)
        if not word or (0.4 <= kind < 0.5 and len(word) == 1):
            return word
        if kind < 0.5:
            return _move(word, kind, next(rest))
        return _change(word, rest) if kind < 0.8 else _longer(word, rest)


def _index(u: float, count: int) -> int:
    return min(int(u * count), count - 1)


def _move(word: str, kind: float, u: float) -> str:
    """Double, leave out or swap a letter."""
    if kind < 0.4:
        i = _index(u, len(word))
        return word[:i] + (2 * word[i] if kind < 0.15 else "") + word[i + 1 :]
    i = _index(u, len(word) - 1)
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def _change(word: str, rest: Iterator[float]) -> str:
    i = _index(next(rest), len(word))
    near = NEIGHBOURS.get(word[i].lower())
    if near is None:
        return word
    known = near if next(rest) < 0.6 else LETTERS
    new = known[_index(next(rest), len(known))]
    return word[:i] + (new.upper() if word[i].isupper() else new) + word[i + 1 :]


def _longer(word: str, rest: Iterator[float]) -> str:
    i, v = _index(next(rest), len(word) + 1), next(rest)
    beside = word[min(i, len(word) - 1)]
    if v < 0.3 and word[max(i - 1, 0)].lower() in NEIGHBOURS:
        next(rest)  # the authors' first choice, always overwritten
    known = NEIGHBOURS.get(beside.lower(), LETTERS) if v < 0.3 else LETTERS
    new = known[_index(next(rest), len(known))]
    return word[:i] + (new.upper() if beside.isupper() else new) + word[i:]
