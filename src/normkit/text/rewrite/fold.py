"""Fold: how texts are compared unless a normalizer is told otherwise."""

from __future__ import annotations

import unicodedata


def fold(text: str) -> str:
    """Return a text in NFKC, without case, runs of white space as one space.

    >>> fold("  ＦＲＡＮＫＦＵＲＴ  am Main ")
    'frankfurt am main'
    """
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())
