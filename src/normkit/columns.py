"""Rows of words as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line a row, with the columns under each other; rows are of one length.

    >>> aligned([("site", "was"), ("norm", "layernorm")])
    ['site  was', 'norm  layernorm']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(width) for c, width in zip(row, widths, strict=True)).rstrip() for row in rows]
