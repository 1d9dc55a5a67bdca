"""What TSIT claims of its feature-adaptive denormalization."""

from functools import partial

import normkit as nk
from normkit.claims import classes
from normkit.claims.kinds import Identity


def contrast(seed):
    """How much the output differs between two constant maps of classes."""
    return classes.contrast(nk.FADE(4, feature_channels=classes.CLASSES, norm="instance").double())


def parameters(seed, widths=(64, 128, 256, 512, 1024), labels=(128, 256)):
    """Its parameters as a share of SPADE's, the largest over widths and numbers of labels."""
    shares = []
    for width in widths:
        own = size(nk.FADE(width, feature_channels=width, device="meta"))
        shares += [own / size(nk.SPADE(width, label_channels=number, device="meta")) for number in labels]
    return max(shares)


def size(module):
    """How many parameters there are."""
    return sum(parameter.numel() for parameter in module.parameters())


CLAIMS = [
    classes.constant_class(contrast),
    Identity(
        "parameters",
        says="It has fewer parameters than SPADE for 128 labels and more, at each width of the generator, 64 to 1024.",
        measure=parameters,
        bound=0.999,
        breaks=partial(parameters, labels=(1,)),
        against="1 label",
        number="share of SPADE's parameters",
        draws=1,
    ),
    Identity(
        "parameters-narrow",
        says="It has fewer parameters than SPADE for 128 labels and more, at 64 and 128 channels.",
        measure=partial(parameters, widths=(64, 128)),
        bound=0.999,
        breaks=partial(parameters, widths=(256,)),
        against="256 channels",
        number="share of SPADE's parameters",
        draws=1,
    ),
]
