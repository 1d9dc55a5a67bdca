"""What is claimed of PCB-Merging for networks that were tuned from one base."""

import functools
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import accuracy, case, held_out, train

BASE, TUNING, SCALES = 20, 60, [0.2 * step for step in range(1, 11)]


@functools.cache
def vectors(seed):
    """What tuning on digits up to 4, and on the others, changes."""
    base = case(seed, steps=BASE)
    rows = [torch.cat([(tuned - weight).flatten() for tuned, weight in zip(
        train(base.weights, base.x[half], base.labels[half], steps=TUNING), base.weights, strict=True)])
        for half in (base.labels < 5, base.labels >= 5)]  # fmt: skip
    return torch.stack(rows)


def joined(seed, way):
    """The accuracy with the sum of both, with PCB-Merging at the scale that is best in training, or with the mean."""
    base, both = case(seed, steps=BASE), vectors(seed)
    change = nk.pcb_merge(both).merged if way == "pcb" else both.sum(0)
    sizes = [weight.numel() for weight in base.weights]

    def weights(scale):
        parts = (scale * change).split(sizes)
        return [weight + part.view_as(weight) for weight, part in zip(base.weights, parts, strict=True)]

    scales = [0.5] if way == "mean" else SCALES
    best = max(scales, key=lambda scale: accuracy(weights(scale), base.x, base.labels))
    return held_out(base, weights(best))


def ahead(seed, way="pcb"):
    """By how many points it is ahead of the sum."""
    return joined(seed, way) - joined(seed, "sum")


CLAIMS = [
    Trained(
        "over-arithmetic",
        says="Of networks tuned on half of the classes each, it makes one a point better than their tuned sum does.",
        measure=ahead,
        wanted=above(1.0),
        control=partial(ahead, way="mean"),
        against="the mean",
        number="points",
        bed="trained-digits",
    )
]
