"""What is claimed of features on a sphere against min-max scaling."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

CLASSES, EACH, DIM = 10, 20, 32


def gain(seed, heavy=True):
    """The gain of the accuracy of the nearest prototype, in points, over min-max scaling."""
    means, noise = randn(CLASSES, 1, DIM), randn(CLASSES, 2 * EACH, DIM)
    x = (means + 1.5 * noise).exp() if heavy else means + 1.5 * noise
    fitted, tested = x[:, :EACH], x[:, EACH:]
    low, high = fitted.amin((0, 1)), fitted.amax((0, 1))
    norm = nk.L2FeatureNorm()
    return 100 * (
        accuracy(norm(fitted), norm(tested)) - accuracy(*((part - low) / (high - low) for part in (fitted, tested)))
    )


def accuracy(fitted, tested):
    """How often the nearest mean of a class is that of one's own."""
    nearest = torch.cdist(tested, fitted.mean(1)).argmin(-1)
    return (nearest == torch.arange(CLASSES)[:, None]).double().mean()


CLAIMS = [
    Measured(
        "heavy-tails",
        says="With heavy tails the nearest prototype is right 2 points more often than with min-max scaling.",
        measure=gain,
        wanted=above(2.0),
        control=partial(gain, heavy=False),
        against="normal features",
        number="points of accuracy",
        draws=50,
        rule="mean",
        null=0.0,
        reach="proxy",
    )
]
