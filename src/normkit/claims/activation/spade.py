"""What SPADE claims of labels that are constant over the image."""

import normkit as nk
from normkit.claims import classes
from normkit.claims.kinds import Identity


def contrast(seed):
    """How much the output differs between two constant maps of classes."""
    return classes.contrast(nk.SPADE(4, label_channels=classes.CLASSES).double())


CLAIMS = [
    classes.constant_class(contrast),
    Identity(
        "lost-otherwise",
        says="A convolution followed by an instance norm loses it.",
        measure=classes.lost,
        bound=1e-6,
        breaks=contrast,
        against="SPADE",
        number="difference between two classes",
    ),
]
