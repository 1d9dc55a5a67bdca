"""The kinds of claims: an identity, exact in every draw, and a property, measured.

>>> Identity(
...     "scale",
...     says="A positive factor changes nothing.",
...     measure=lambda seed: 1e-16,
...     bound=1e-10,
...     breaks=lambda seed: 0.5,
...     against="the row is shifted",
... ).wanted
at most 1e-10
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

Measure = Callable[[int], float]  # of a seed
RULES = ("every", "median", "mean", "within")
REACHES = ("full", "proxy")


class Bound(NamedTuple):
    """What a number must be."""

    value: float
    least: bool = False  # the number must be at least so large, not at most

    def met(self, number: float) -> bool:
        """Whether a number is on the right side; NaN is not."""
        return number >= self.value if self.least else number <= self.value

    def margin(self, number: float) -> float:
        """How far a number is on the right side; below 0 on the wrong one."""
        if math.isnan(number):
            return -math.inf
        return number - self.value if self.least else self.value - number

    def __repr__(self) -> str:
        return f"at {'least' if self.least else 'most'} {self.value:.4g}"


def above(value: float) -> Bound:
    """At least so large."""
    return Bound(value, least=True)


def below(value: float) -> Bound:
    """At most so large."""
    return Bound(value)


@dataclass(frozen=True)
class Claim:
    """What identities and properties share: a measure, a control that must fail it, and a bound."""

    name: str
    says: str
    measure: Measure
    wanted: Bound
    control: Measure
    against: str
    number: str = "number"
    draws: int = 10
    rule: str = "every"
    null: float | None = None
    source: str = ""
    reach: str = "full"
    bed: str = ""
    further: int = 0
    paper: str = ""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse a claim that could not fail."""
        if not (callable(self.measure) and callable(self.control)):
            raise TypeError(f"{self.name}: the measure and its control must be functions of a seed")
        if self.control is self.measure:
            raise ValueError(f"{self.name}: the control is the measure itself; it must be where the claim is false")
        for field in ("says", "against"):
            if not getattr(self, field).strip():
                raise ValueError(f"{self.name}: {field} must say in words what is claimed, or what the control is")
        for field, words in (("rule", RULES), ("reach", REACHES)):
            if getattr(self, field) not in words:
                raise ValueError(f"{self.name}: {field} must be one of {words}, not {getattr(self, field)!r}")
        if self.draws < 1 or (self.rule in ("mean", "within") and self.draws < 3):
            raise ValueError(f"{self.name}: {self.draws} draws are too few")


class Identity(Claim):
    """An exact claim: every draw within the bound, and ``breaks`` outside in every draw.

    Args:
        name: one word or a few, unique among the method's.
        says: the claim, in our words.
        measure: a seed's number.
        bound: the largest number, or ``above(x)``.
        breaks: the same number where the claim is false.
        against: what is different there.
        number: what the number is.
        draws: seeds.
        source: where it is claimed; by default the method's paper.
    """

    kind = "identity"

    def __init__(
        self,
        name: str,
        says: str,
        measure: Measure,
        bound: float | Bound,
        breaks: Measure,
        against: str,
        number: str = "error",
        draws: int = 10,
        source: str = "",
    ):
        wanted = bound if isinstance(bound, Bound) else below(bound)
        super().__init__(name, says, measure, wanted, breaks, against, number, draws, source=source)


class Measured(Claim):
    """A property: a number over seeds, held to a bound by one of four rules.

    ``rule="every"``: each draw within the bound. ``"median"``: the median. ``"mean"``: it holds where the mean is
    within the bound and the 95 % interval of the mean on the right side of ``null``, by default the bound itself; it
    does not hold where the interval lies outside the bound. ``"within"``: no farther from 0 than the bound, by two
    one-sided tests; it does not hold where the mean is farther, and its 95 % interval leaves out 0.

    Args:
        name: one word or a few, unique among the method's.
        says: the claim, in our words.
        measure: a seed's number.
        wanted: ``below(x)`` or ``above(x)``.
        control: the same number where the claim is false.
        against: what is different there.
        number: what the number is.
        draws: seeds.
        rule: how the draws are judged.
        null: the number if there were no effect.
        source: where it is claimed; by default the method's paper.
        reach: "full", or "proxy" where a small model stands for a large one: the verdict is one at this scale.
        paper: what the paper measured, in a few words.
    """

    kind = "property"


@dataclass(frozen=True)
class Trained(Measured):
    """A property of models that are trained: a difference of two, paired by seed, on a bed of :mod:`.beds`.

    By default the mean must be within the bound, and its interval above 0. Where the bed did not see what it must see,
    the claim is undecided. There are two looks, of which each spends half of 5 %: the second where the first leaves
    the claim undecided.

    Args:
        bed: the bed's name.
        further: seeds of the second look, those of the first among them; 0 for none.
    """

    number: str = "difference"
    draws: int = 8
    rule: str = "mean"
    null: float | None = 0.0
    reach: str = "proxy"
    further: int = 24

    kind = "training"

    def __post_init__(self) -> None:
        if not self.bed:
            raise ValueError(f"{self.name}: bed must name where it is trained")
        self.check()
