"""What SPADE claims of labels that are constant over the image."""

import normkit as nk
from normkit.claims import classes
from normkit.claims.kinds import Identity, above


def seen(seed):
    """How much the output differs between two constant maps of classes."""
    return classes.told_apart(nk.SPADE(4, label_channels=classes.CLASSES).double())


CLAIMS = [
    Identity(
        "constant-class",
        says="A class that is constant over the image is seen in the output.",
        measure=seen,
        bound=above(0.1),
        breaks=classes.lost,
        against="a convolution and an instance norm",
        number="difference between two classes",
    ),
    Identity(
        "lost-otherwise",
        says="A convolution followed by an instance norm loses it.",
        measure=classes.lost,
        bound=1e-6,
        breaks=seen,
        against="SPADE",
        number="difference between two classes",
    ),
]
