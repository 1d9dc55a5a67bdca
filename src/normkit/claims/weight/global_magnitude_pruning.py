"""What is claimed of pruning by size."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, Trained, above
from normkit.claims.trained import ahead
from normkit.claims.weight._digits import TRAINING, digits, started, trained

SIZES, SPARSITY = (64, 32, 512, 10), 0.98  # 480 of 24,000 weights are left
MINIMUM = 40


def pruned(minimum):
    """The masks of a trained network."""
    x, labels = digits()
    weights = trained(started(SIZES), x[:TRAINING], labels[:TRAINING])
    return nk.global_magnitude_pruning(*weights, sparsity=SPARSITY, minimum=minimum)


def left(seed, minimum=MINIMUM):
    """The weights that the layer with the fewest keeps."""
    return min(mask.sum() for mask in pruned(minimum))


CLAIMS = [
    Measured(
        "collapse",
        says="With a minimum no layer loses all of its weights at 98 % of zeros.",
        measure=left,
        wanted=above(1.0),
        control=partial(left, minimum=0),
        against="no minimum",
        number="weights of the smallest layer",
        draws=3,
    ),
    *(
        Trained(
            f"as-gradients-at-{percent}",
            says=f"At {percent} % of zeros it is not behind size times gradient by more than a point.",
            measure=partial(ahead, score="size", sparsity=percent / 100),
            wanted=above(-1.0),
            control=partial(ahead, score="any", sparsity=percent / 100),
            against="weights that go at random",
            number="points",
            null=None,
            bed="trained-digits",
        )
        for percent in (90, 95)
    ),
]
