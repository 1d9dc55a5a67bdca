"""A loss that turns finite outputs into NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import DATA, LOSS, History


def find(history: History) -> Iterator[Finding]:
    """Look for a step whose gradient was not finite though data and output were; every step was looked at."""
    step, output, data = (history.first_bad(place) for place in ("gradient", "output", DATA))
    if step and not any(0 < other <= step for other in (output, data)):
        yield Finding(
            "the loss makes NaN of finite outputs",
            10.5,
            (LOSS,),
            f"at step {step} the data and what the model gives are finite, and the gradient is not: a logarithm or a "
            "root of zero, a division by zero, or an exponential in the loss.",
            since=step,
            leads="weights of NaN after that step; go back to a checkpoint of before",
            otherwise="a finite gradient wherever data and output are",
            remedies=(
                Remedy(
                    "find the line", "torch.autograd.set_detect_anomaly(True)  # names the line of the forward pass"
                ),
                Remedy("a guard", "x = x.clamp(min=1e-12).log()  # and log_softmax instead of log(softmax)"),
            ),
        )
