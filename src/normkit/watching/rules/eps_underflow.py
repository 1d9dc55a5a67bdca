"""An optimizer whose eps is zero in the half precision of its weights."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History

LEAST = 2.0**-25  # half of float16's smallest number: what is smaller is rounded to zero


def find(history: History) -> Iterator[Finding]:
    """Compare eps with float16's smallest number; bfloat16 has the exponents of float32."""
    groups, dtypes = history.facts["groups"], history.facts.get("dtypes_of", {})
    ill = [
        name
        for name, group in history.facts["group_of"].items()
        if dtypes.get(name) == "float16" and 0 < groups[group].get("eps", 0.0) < LEAST
    ]
    if ill:
        eps = groups[history.facts["group_of"][ill[0]]]["eps"]
        yield Finding(
            "the optimizer's eps is zero in float16",
            5.5,
            tuple(ill),
            f"eps is {eps:g}, and the smallest number of float16 is 6e-08: where a second moment is zero too, a step "
            f"divides by zero; {len(ill)} parameters are float16.",
            since=history.steps[0] if history.steps else None,
            leads="infinite steps, and NaN",
            otherwise="an eps that float16 can hold, or weights of another type",
            remedies=(
                Remedy(
                    "float32 weights", "model.float()  # with torch.autocast and torch.amp.GradScaler for the speed"
                ),
                Remedy("a larger eps", 'for group in optimizer.param_groups: group["eps"] = 1e-4'),
            ),
        )
