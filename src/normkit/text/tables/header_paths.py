"""Header paths: the rows and columns of a table with nested headers, a text each."""

from __future__ import annotations

from collections.abc import Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

Table = Sequence[Sequence[str]]


@method(
    "header-paths",
    paper="HD-RAG: Retrieval-Augmented Generation for Hybrid Documents Containing Text and Hierarchical Tables "
    "(Zhang and Chen, 2025), arXiv 2504.09554",
    evidence="abstract",
    shape="",
    provenance="there is no code, and the paper was read through a review",
)
class HeaderPaths(Text):
    """Write each row, and each column, of a table with nested headers as one text that names the whole path.

    For retrieval: each text is a unit to be indexed, pointing back at its table. ``rows`` gives

        a -> b: c -> d = value; c -> e = value; ...

    the row's headers before the colon, its columns' before each value, and ``columns`` the same with the roles changed.
    An empty header cell takes what its neighbour has, to the left or above, where the headers outside of both agree.

    Args:
        top: how many of the first rows are headers.
        left: how many of the first columns are.

    A table is a list of rows of strings, all of one length; merged cells are text and empty cells. A span that ends
    early looks like one that goes on: a blank that is meant needs a space.

    HD-RAG (2025), arXiv 2504.09554.
    """

    calls = {
        name: ([["city", "people", "area"], ["Bern", "134", "52"], ["Basel", "178", "24"]],)
        for name in ("rows", "columns", "top_paths", "left_paths")
    }

    def __init__(self, top: int = 1, left: int = 1):
        self.top = check.size(self, "top", top, least=0)
        self.left = check.size(self, "left", left, least=0)

    def top_paths(self, table: Table) -> list[list[str]]:
        """Return the headers of each column, from the outside in."""
        self._check(table)
        return _paths([list(row[self.left :]) for row in table[: self.top]], len(table[0]) - self.left)

    def left_paths(self, table: Table) -> list[list[str]]:
        """Return the headers of each row, from the outside in."""
        self._check(table)
        below = table[self.top :]
        return _paths([[row[level] for row in below] for level in range(self.left)], len(below))

    def rows(self, table: Table) -> list[str]:
        """Return a text for each row."""
        values = [row[self.left :] for row in table[self.top :]]
        return _texts(self.left_paths(table), self.top_paths(table), values)

    def columns(self, table: Table) -> list[str]:
        """Return a text for each column."""
        values = [
            [row[place] for row in table[self.top :]] for place in range(self.left, len(table[0]) if table else 0)
        ]
        return _texts(self.top_paths(table), self.left_paths(table), values)

    def _check(self, table: Table) -> None:
        if len({len(row) for row in table}) != 1:
            raise ValueError("HeaderPaths: table must have rows, all of one length")
        if len(table) < self.top or len(table[0]) < self.left:
            raise ValueError(f"HeaderPaths: table must have at least {self.top} rows and {self.left} columns")


def _paths(levels: list[list[str]], count: int) -> list[list[str]]:
    """Fill the headers, given by level, and return the path of each place."""
    for depth, level in enumerate(levels):
        for place in range(1, count):
            if not level[place] and all(outer[place] == outer[place - 1] for outer in levels[:depth]):
                level[place] = level[place - 1]
    return [_path([level[place] for level in levels]) for place in range(count)]


def _path(names: list[str]) -> list[str]:
    """Leave out empty names and immediate repeats."""
    labels = [name for name in names if name]
    return [name for place, name in enumerate(labels) if place == 0 or name != labels[place - 1]]


def _texts(own: list[list[str]], across: list[list[str]], values: Sequence[Sequence[str]]) -> list[str]:
    parts = [
        "; ".join(f"{' -> '.join(path)} = {value}" for path, value in zip(across, line, strict=True)) for line in values
    ]
    return [f"{' -> '.join(path)}: {part}" for path, part in zip(own, parts, strict=True)]
