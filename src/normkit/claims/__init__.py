"""What papers claim of their methods, as experiments with a verdict.

A claim is a few lines in ``claims/ROOM/NAME.py``: what is claimed, a number measured, what it must be, and a control,
the same number where the claim is false. :mod:`normkit.claims.kinds` has the kinds, :mod:`normkit.claims.engine`
measures and judges, :mod:`normkit.claims.shelf` finds claims and stored results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normkit.claims.engine import Verdict

__all__ = ["claim"]


def claim(name: str, *, run: bool = False) -> list[Verdict]:
    """Return the verdicts on what a method's paper claims, as ``normkit claim NAME`` prints them.

    >>> import normkit as nk
    >>> [(verdict.name, verdict.word) for verdict in nk.claim("rmsnorm")][0]
    ('scale', 'holds')

    Args:
        name: a method's name, or another name of it.
        run: measure again, where a result is stored with the package.
    """
    from normkit.threads import processor_by_default

    with processor_by_default():
        from normkit.claims import engine, shelf

        return engine.verdicts(shelf.claims_of(name), run=run)
