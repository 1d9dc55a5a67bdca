"""Column text: a table's column as a sentence, so that columns that join can be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text


@method(
    "column-text",
    paper="DeepJoin: Joinable Table Discovery with Pre-trained Language Models (Dong et al., 2023), arXiv 2212.07588",
    evidence="library",
    shape="",
    provenance="the authors published no code; the text is that of a third party's",
)
class ColumnText(Text):
    """Write a column as its name, the number and lengths of its distinct values, and the values, frequent ones first.

    For finding columns of other tables that join with one, also where equal things are written differently: a sentence
    encoder is trained on pairs of such texts and then searched. Where cells must be equal, ``joinability`` is exact and
    needs no model.

    The text is

        NAME contains N values (LONGEST, SHORTEST, MEAN): v1, v2, ...

    cut to the first ``limit`` words, which are apart by white space. ``joinability`` is the label, |Q & X| / |Q|; it is
    not symmetric.

    Args:
        limit: the most words.

    ``method(name, values)``: strings, at least one; lengths are in code points, equals in order of appearance.

    DeepJoin (Dong et al., 2023), arXiv 2212.07588.

    Differs from the paper in: one of its seven templates, without the table's title.
    """

    calls = {
        "__call__": ("city", ["Paris", "Rome", "Paris", "Oslo"]),
        "joinability": (["a", "b", "c", "a"], ["b", "c", "d"]),
    }

    def __init__(self, limit: int = 512):
        self.limit = check.size(self, "limit", limit)

    def __call__(self, name: str, values: Sequence[str]) -> str:
        """Return the column as text."""
        if not values:
            raise ValueError("ColumnText: values must be at least one; an empty column has no text")
        distinct = [value for value, _ in Counter(values).most_common()]
        lengths = [len(value) for value in distinct]
        numbers = f"{max(lengths)}, {min(lengths)}, {sum(lengths) / len(lengths)}"
        text = f"{name} contains {len(distinct)} values ({numbers}): {', '.join(distinct)}"
        return " ".join(text.split()[: self.limit])

    def joinability(self, query: Sequence[str], target: Sequence[str]) -> float:
        """Return the share of the query's distinct values that the target has."""
        if not query:
            raise ValueError("ColumnText: query must be at least one value")
        return len(set(query) & set(target)) / len(set(query))
