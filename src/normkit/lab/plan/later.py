"""What trained models are put to once a run has ended: shifted streams, and few bits."""

from __future__ import annotations

import itertools

from normkit.lab.plan import bits, shift, tasks
from normkit.lab.plan.settings import Settings, spell


def require(settings: Settings) -> None:
    """Refuse names that there are none of, and what goes with neither."""
    for name, other in itertools.product(("shift", "quant"), ("train", "federated", "sharded")):
        if getattr(settings, name) and getattr(settings, other):
            raise ValueError(f"{spell(name)} and {spell(other)} exclude each other")
    shift.require(settings)
    bits.require(settings)


def check(settings: Settings) -> None:
    """Refuse data that cannot be shifted, and corruptions and streams that do not fit them."""
    if settings.shift:
        shift.require_fit(shift.samples(tasks.load(settings), settings), settings)
