"""Batch norms whose running statistics are not those of the batches, so that evaluation sees another network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from normkit.watching import proposals
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

RATIO = 4.0
"""Of running to batch variance, the geometric mean over channels. Chance moves a single channel of a small batch by a
factor of two; all channels together stay within 1.5 in healthy trainings here."""
SHIFT, NOISE = 0.6, 3.0
"""Of the batch's deviation, between running mean and the batch's, and times that of a mean of as many values: batches
that are drawn at random differ by their noise, those of sorted data by what tells the classes apart."""
LIVES, MOST = 3.0, 60
"""So many times 1 / momentum steps the average holds its start of one; but after 60 an evaluation is likely."""
NEEDS = Needs(
    "running statistics are those of the batches", steps=30, asked=lambda history: bool(history.names("variance_ratio"))
)


def find(history: History) -> Iterator[Finding]:
    """Compare them where the average has had its time."""
    momenta, layers = history.facts["momenta"], {}
    for name, ratio in history.late("variance_ratio").items():
        if _has_left(history, name, "variance_ratio") and ratio > 0 and not 1 / RATIO < ratio < RATIO:
            layers[name] = ratio
    far = {
        name: shift
        for name, shift in history.late("mean_shift").items()
        if _has_left(history, name, "mean_shift") and shift > max(SHIFT, NOISE / _count(history, name) ** 0.5)
    }
    if far and not layers:
        yield _shift_of_means(history, far)
    order = sorted(layers, key=lambda name: -abs(math.log(layers[name])))
    if not order:
        return
    if momenta.get(order[0]) == 0:
        yield _that_stand(order)
        return
    ratio = layers[order[0]]
    text = f"{number(ratio)} times the batch's" if ratio > 1 else f"the {number(1 / ratio)}th part of the batch's"
    yield Finding(
        "running statistics are not those of the batches",
        3.0,
        tuple(order),
        f"the running variance of {order[0]} is {text}"
        f"{f'; {len(order) - 1} other layers are off as well' if len(order) > 1 else ''}.",
        since=history.since_when(order[0], "variance_ratio", lambda value: not 1 / RATIO < value < RATIO),
        leads="a model that is right in training and wrong in evaluation",
        otherwise=f"a ratio of 1 / {RATIO:g} to {RATIO:g}; within 1.5 in healthy trainings",
        margin=max(ratio, 1 / ratio) / RATIO,
        remedies=(
            Remedy("recalibrate", "nk.recalibrate(model, batches)"),
            proposals.swap_line(history, "groupnorm"),
        ),
    )


def _that_stand(names: list[str]) -> Finding:
    return Finding(
        "running statistics stand still",
        3.0,
        tuple(names),
        f"the momentum of {names[0]} is 0, so that no batch moves its averages; {len(names)} norms are so.",
        leads="a model that is right in training and wrong in evaluation",
        otherwise="a momentum of 0.1 or so, or of None",
        remedies=(
            Remedy("a momentum", '[setattr(m, "momentum", 0.1) for m in model.modules() if hasattr(m, "running_var")]'),
            Remedy("recalibrate", "nk.recalibrate(model, batches)"),
        ),
    )


def _has_left(history: History, name: str, what: str) -> bool:
    """Whether an average had left its start when it was last a number."""
    last = max(step for step, value in zip(history.steps, history.series(name, what), strict=True) if value == value)
    return last >= min(LIVES / max(history.facts["momenta"].get(name, 0.1), 1e-9), MOST)


def _count(history: History, name: str) -> float:
    return max(history.late("count").get(name, 1.0), 1.0)


def _shift_of_means(history: History, far: Mapping[str, float]) -> Finding:
    order = sorted(far, key=lambda name: -far[name])
    bound = max(SHIFT, NOISE / _count(history, order[0]) ** 0.5)
    return Finding(
        "running statistics are not those of the batches",
        3.0,
        tuple(order),
        f"the running mean of {order[0]} lies {number(far[order[0]])} deviations from the batch's, and noise of "
        f"{_count(history, order[0]):.0f} values is {number(_count(history, order[0]) ** -0.5)}: batches differ.",
        since=history.since_when(order[0], "mean_shift", lambda value: value > SHIFT),
        leads="a model that is right in training and wrong in evaluation",
        otherwise=f"a mean within {number(bound)} deviations, by the noise of batches",
        margin=far[order[0]] / bound,
        remedies=(
            Remedy(
                "shuffled data", "loader = torch.utils.data.DataLoader(loader.dataset, loader.batch_size, shuffle=True)"
            ),
            proposals.swap_line(history, "groupnorm"),
        ),
    )
