"""What trained models are put to once a run has ended: shifted streams, and few bits."""

from __future__ import annotations

from normkit.lab.plan import bits, shift, tasks
from normkit.lab.plan.settings import Settings


def require(settings: Settings) -> None:
    """Refuse names that there are none of."""
    shift.require(settings)
    bits.require(settings)


def check(settings: Settings) -> None:
    """Refuse data that cannot be shifted, and corruptions and streams that do not fit them."""
    if settings.shift:
        for _ in shift.streams(shift.samples(tasks.load(settings), settings), settings, 1):
            pass
