"""One batch whose numbers are far larger than those of all before, and what it did."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import BAD, DATA, History
from normkit.watching.rules import gradient_spikes, loss_diverges, loss_spikes, not_a_number

RATIO = 30.0
"""Of the sum of a batch, over the largest of ten and more before. Sums of random data lie around zero; that ten of them
are by chance so near to it has a probability of 1e-11."""
EFFECTS = (not_a_number, loss_diverges, loss_spikes, gradient_spikes)


def find(history: History) -> Iterator[Finding]:
    """Name the batch where something went wrong after it: by itself it is no illness."""
    ratios, steps = (history.series(BAD, what) for what in ("jump", "jump_step"))
    if not (ratios > RATIO).any():
        return
    ratio, step = float(ratios[-1]), int(steps[-1])
    harm = [finding for rule in EFFECTS for finding in rule.find(history) if (finding.since or step) >= step]
    if harm:
        yield Finding(
            "one batch is far larger than the others",
            10.5,
            (DATA,),
            f"the sum of the batch of step {step} is {number(ratio)} times the largest of all before; "
            f"then {harm[0].title}.",
            since=step,
            leads="one step that undoes many; go back to a checkpoint of before",
            otherwise=f"sums of at most {RATIO:g} times those before",
            margin=ratio / RATIO,
            remedies=(
                Remedy("look at the data", "print((max((x.abs().max(), i) for i, (x, *_) in enumerate(loader))))"),
                Remedy("shorter steps", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before optimizer.step()"),
            ),
        )
