"""Labels that do not follow from the inputs, or are few: the weights move, and the loss stays at guessing's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normkit.columns import number_of
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History, late_median
from normkit.watching.rules.no_targets import COUNT

NEAR = 0.04  # of the logarithm of the number of classes, above which the loss stays
MOVED = 0.2  # of the weights' length, if all steps so far went the same way
RIGHT = 2.5  # times the share that guessing has right, which of two classes is more than all:
LEARNED = 0.3  # of what guessing has wrong
FEWEST, STEPS = 8, 80  # samples and steps
TARGETS = 200  # in all samples: of 20, none is right in a third of all cases where 5 % are learned
SHARE = 0.05  # of the outputs: masked words are 15 %; where fewer count, that is named, as a mask may be wrong


def _too_few(history: History) -> str:
    """Say that too few targets were seen; nothing where they suffice, or were not counted."""
    count = int(np.nansum(history.series(LOSS, "targets")))
    few = history.was_read(LOSS, "targets").any() and count < TARGETS
    return f"{number_of(count, 'target')} in the samples, where {TARGETS} are needed" if few else ""


NEEDS = Needs(
    "labels follow from the inputs",
    ("accuracy",),
    FEWEST,
    STEPS,
    lambda history: history.was_read(LOSS, "accuracy").any(),
    _too_few,
)


def find(history: History) -> Iterator[Finding]:
    """Ask for a cross entropy at guessing, right answers by chance, and weights that have moved."""
    loss, right = (history.series(LOSS, what) for what in ("cross_entropy", "accuracy"))
    losses = loss[~np.isnan(loss)]
    if len(losses) < FEWEST or history.steps[-1] < STEPS:
        return
    classes = float(np.nanmax(history.series(LOSS, "classes")))
    chance, late = float(np.log(classes)), late_median(loss)
    moved = _moved(history)
    enough = min(RIGHT / classes, LEARNED + (1 - LEARNED) / classes)
    if late < (1 - NEAR) * chance or late_median(right) > enough or moved < MOVED or late > 2 * chance:
        return
    stays = (
        f"after {history.steps[-1]} steps the loss is {number(late)}, and equal probabilities of {classes:.0f} classes "
        f"give {number(chance)}"
    )
    outputs, counted = (float(np.nansum(history.series(LOSS, what))) for what in ("outputs", "counted"))
    if counted < SHARE * outputs:
        yield Finding(
            "the loss counts few of the outputs",
            2.9,
            (LOSS,),
            f"{number(100 * counted / outputs)}% of the outputs get a gradient; {stays}.",
            leads="a training that learns from a small part of what it computes",
            otherwise=f"a loss below {number((1 - NEAR) * chance)}, or {SHARE:.0%} of the outputs",
            margin=SHARE * outputs / max(counted, 1.0),
            remedies=(COUNT,),
        )
    elif not _too_few(history):
        yield Finding(
            "labels do not follow from the inputs",
            2.9,
            (LOSS,),
            f"{stays}; {late_median(right):.0%} are right. The weights move, by {number(moved)} of their length in "
            "all, and gradients arrive.",
            leads="a model that learns how often each label comes, and no more",
            otherwise=f"a loss below {number((1 - NEAR) * chance)}, or more than {enough:.0%} that are right",
            margin=(late / ((1 - NEAR) * chance)) ** 12,
            remedies=(
                Remedy("look at pairs", "print some inputs with their labels as they come from the loader", runs=False),
                Remedy("one batch", "train on a single batch: a model that is right learns it by heart", runs=False),
            ),
        )


def _moved(history: History) -> float:
    """Return how far half of the matrices have moved, of their lengths; frozen ones have not.

    Of a matrix that began near zero each early step is as long as itself, whatever the rate.
    """
    moves = [0.0 for _ in history.facts.get("frozen", ())]
    for name, series in history.of("update").items():
        is_matrix = len(history.facts["shapes"].get(name, [])) > 1
        if is_matrix and not history.began_near_zero(name) and not np.isnan(series).all():
            moves.append(float(np.nanmedian(series)))
    return float(np.median(moves)) * history.steps[-1] if moves else 0.0
