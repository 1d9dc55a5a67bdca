"""Parameters that are to be trained, and that no optimizer holds."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History


def find(history: History) -> Iterator[Finding]:
    """Look for parameters that require a gradient and are in no group."""
    out = history.facts["left_out"]
    if out:
        yield Finding(
            "the optimizer does not hold all parameters",
            3.3,
            tuple(out),
            f"{len(out)} of {len(history.facts['shapes'])} parameters that require a gradient are in none of its "
            f"groups: {', '.join(out[:4])}.",
            leads="layers that stay as they were drawn",
            otherwise="all of them in some group",
            remedies=(
                Remedy(
                    "add them",
                    "held = {id(p) for group in optimizer.param_groups for p in group['params']}; "
                    "left = [p for p in model.parameters() if p.requires_grad and id(p) not in held]; "
                    "optimizer.add_param_group({'params': left})",
                ),
            ),
        )
