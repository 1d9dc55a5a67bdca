"""What variants are compared by: the held-out loss, an accuracy, or a function of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from normkit.lab.plan import handed
from normkit.lab.plan.settings import spell

LOSS, ACCURACY = "loss", "accuracy"
CLIENTS, WORST = "client-accuracy", "worst-client"  # of many owners of data: their mean, and the worst
SPREAD, EACH = "client-spread", "clients"  # what logs call the deviation over clients, and the accuracy of each
SHARES = (ACCURACY, CLIENTS, WORST)
NAMED = (LOSS, *SHARES)
OWN = "metric"  # what a log calls the value of a user's own measure


@dataclass(frozen=True)
class Measure:
    """A number by which variants are compared.

    name: what it is called in words; key: what the logs call it; higher: whether more of it is better.
    """

    name: str = LOSS
    key: str = LOSS
    higher: bool = False

    @property
    def is_share(self) -> bool:
        """Whether it is written in percent."""
        return self.key in SHARES

    def badness(self, values: Mapping[str, Any]) -> float:
        """Return the number turned so that less is better; infinity where there is none.

        >>> Measure("accuracy", "accuracy", higher=True).badness({"loss": 0.3, "accuracy": 0.9})
        -0.9
        """
        value = values.get(self.key)
        finite = isinstance(value, int | float) and math.isfinite(value)
        return (-value if self.higher else value) if finite else math.inf  # type: ignore[operator,return-value]


def of(settings: Mapping[str, Any]) -> Measure:
    """Return the measure that some settings name.

    >>> of({"metric": "mine:f1", "higher": True})
    Measure(name='f1', key='metric', higher=True)
    """
    named = settings.get("metric") or LOSS
    if named in NAMED:
        return Measure(named, named, named in SHARES)
    return Measure(handed.in_words(named).rpartition(":")[2], OWN, bool(settings.get("higher")))


def import_measure(source: str) -> Callable[..., Any]:
    """Import a user's measure, ``module:function``: a function of the model and the held-out batches."""
    from normkit.lab.plan.data import resolve

    if ":" not in source:
        raise ValueError(
            f"metric {source!r} is unknown; it is 'loss', 'accuracy' or 'module:function', and with "
            f"{spell('federated')} {CLIENTS!r} or {WORST!r}"
        )
    measure = resolve(source, "metric")
    if not callable(measure):
        raise ValueError(f"metric {source!r} is no function of a model and its held-out batches")
    return measure


def is_named_higher(name: str, direction: str | None) -> bool:
    """Return whether more is better of what a user's own training loop returns, under a name of the user's."""
    if ":" in name:
        raise ValueError(f"metric {name!r}: what a training loop returns has a name alone, such as 'perplexity'")
    if direction is None:
        raise ValueError(
            f"metric {name!r} does not say whether more is better: give {spell('metric_direction')} higher or lower"
        )
    return direction == "higher"


def is_higher_better(source: str, direction: str | None) -> bool:
    """Return whether more is better: as the user says, or the function's own ``higher_is_better``."""
    if source in NAMED:
        if direction is not None and (direction == "higher") != (source in SHARES):
            raise ValueError(f"{spell('metric_direction')} {direction} contradicts {spell('metric')} {source}")
        return source in SHARES
    higher = getattr(import_measure(source), "higher_is_better", None)
    if direction is not None:
        return direction == "higher"
    if not isinstance(higher, bool):
        raise ValueError(
            f"metric {source!r} does not say whether more is better: give {spell('metric_direction')} higher or lower, "
            "or the function an attribute higher_is_better"
        )
    return higher
