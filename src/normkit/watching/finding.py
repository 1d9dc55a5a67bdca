"""One thing that goes wrong: where, since when, what shows it, what it leads to, and what would help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SHOWN = 3  # places that are named


class Remedy(NamedTuple):
    """What would help, as the catalogue or a plain word calls it, and the line of code that does it.

    A line calls the user's model ``model`` and the optimizer ``optimizer``; one for the training loop also uses ``x``,
    ``y``, ``scores``, ``loss``, ``loader`` and ``batches``. Advice that is no line of code has ``runs=False``.
    ``tried`` says what came of the line on a copy of the model.
    """

    name: str
    line: str
    runs: bool = True
    tried: str = ""


@dataclass(frozen=True)
class Finding:
    """What a rule has found.

    title: in a few words. weight: how grave; the gravest comes first. where: the layers, the worst first.
    evidence: numbers. since: the first step from which on it was always so. leads: what it leads to. otherwise: what
    would have been seen if it were not so. margin: how many times the number lies beyond the rule's bound, infinity
    where none is needed. rule: which rule has found it. certainty: how sure it is. cause: the rule of the finding that
    it follows from. causes: the rules that alone may be its cause, where others lead to the like. slight: whether it is
    of so little of the model that nothing follows from it. remedies: what would help.
    """

    title: str
    weight: float
    where: tuple[str, ...]
    evidence: str
    since: int | None = None
    leads: str = ""
    otherwise: str = ""
    margin: float = math.inf
    remedies: tuple[Remedy, ...] = ()
    rule: str = ""
    certainty: str = ""
    cause: str = ""
    causes: tuple[str, ...] | None = None
    slight: bool = False

    def places(self) -> str:
        """Name the layers, of many the first few."""
        return list_names(self.where)


def list_names(names: Sequence[str]) -> str:
    """Name some of many.

    >>> list_names(["a"]), list_names(["a", "b"]), list_names(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    names = [name or "the model" for name in names]
    shown = names[:SHOWN] if len(names) > SHOWN + 1 else names
    rest = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    *most, last = [*shown, *rest]
    return f"{', '.join(most)} and {last}" if most else last


def number(value: float) -> str:
    """Write a number with three digits.

    >>> number(0.01234), number(1234.5), number(1e-9), number(8.0)
    ('0.0123', '1230', '1e-09', '8')
    """
    return f"{float(f'{value:.3g}'):.10g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"
