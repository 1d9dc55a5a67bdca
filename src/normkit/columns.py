"""Words and numbers as a terminal shows them: rows under each other, and how many of what."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Return a line a row, with the columns under each other; rows are of one length.

    >>> aligned([("site", "was"), ("norm", "layernorm")])
    ['site  was', 'norm  layernorm']
    >>> aligned([("block", "size"), ("0", "1.5")], numbers=True)
    ['block  size', '0       1.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    put = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(widths) - 1)]
    lines = (zip(put, row, widths, strict=True) for row in rows)
    return ["  ".join(side(cell, width) for side, cell, width in line).rstrip() for line in lines]


def number_of(count: int, noun: str, plural: str = "") -> str:
    """Return how many of what there are; ``plural`` where it is not the noun with an s.

    >>> number_of(1, "norm"), number_of(2000, "norm"), number_of(0, "entry", "entries")
    ('1 norm', '2,000 norms', '0 entries')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def quoted(text: str, most: int = 80) -> str:
    """Return a text in quotes, the beginning of one that is longer than a line.

    >>> quoted("Bern"), quoted("Bern and Basel", most=4)
    ("'Bern'", "'Bern'...")
    """
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."
