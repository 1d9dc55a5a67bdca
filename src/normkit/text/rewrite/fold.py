"""Fold: how texts are compared unless a normalizer is told otherwise."""

from __future__ import annotations

import unicodedata

# the zero width space, the word joiner and the mark of a file's beginning; joiners of letters tell words apart
INVISIBLE = dict.fromkeys((0x200B, 0x2060, 0xFEFF))


def fold(text: str) -> str:
    """Return a text in NFKC, without case and invisible spaces, runs of white space as one space.

    >>> fold("  ＦＲＡＮＫＦＵＲＴ  am Main ")
    'frankfurt am main'
    """
    plain = unicodedata.normalize("NFKC", text.translate(INVISIBLE)).casefold()
    return " ".join(unicodedata.normalize("NFKC", plain).split())
