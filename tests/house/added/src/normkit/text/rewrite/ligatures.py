"""Ligatures: joined letters of a typesetter, written apart."""

from __future__ import annotations

from collections.abc import Sequence

from normkit.catalog import method
from normkit.kinds import Text

LETTERS = str.maketrans({"\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl"})


@method("ligatures", paper="An example of the tests (normkit, 2026)", shape="", evidence="equations")
class Ligatures(Text):
    """Write the ligatures ff, fi, fl, ffi and ffl as letters.

    For texts that were copied out of a PDF, before names are looked up in them.

    ``method(texts)`` returns them in their order.

    An example of the tests (normkit, 2026).
    """

    calls = {"__call__": (["the \ufb01rst o\ufb03ce", "plain"],)}

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Return the texts with letters alone."""
        return [text.translate(LETTERS) for text in texts]
