"""What CORE-ReID claims of its joined features."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity, Measured, above
from normkit.claims.measures import gap, randn


def swapped(seed, first_only=False):
    """What changes when image and mirror image are swapped."""
    norm, one, other = nk.BidirectionalMeanFeatureNorm(), randn(8, 16), randn(8, 16)
    if first_only:
        return gap(norm(one, one), norm(other, other))
    return gap(norm(one, other), norm(other, one))


def one_sided(seed):
    """The same where the first feature alone counts."""
    return swapped(seed, first_only=True)


def gain(seed, bias=1.0, persons=60, dim=32):
    """The gain of the mean average precision over features of one side, each with a length of 1.

    A person has four images, half of them seen from each side; the side adds a bias, the mirror image its opposite.
    """
    side = (
        bias
        * dim**0.5
        * torch.nn.functional.normalize(randn(dim), dim=0)
        * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None]
    )
    person = randn(persons, 1, dim) + 1.5 * randn(persons, 4, dim)
    image, mirror = (person + side).flatten(0, 1), (person - side).flatten(0, 1)
    norm = nk.BidirectionalMeanFeatureNorm()
    return precision(norm(image, mirror)) - precision(norm(image, image))


def precision(features):
    """The mean average precision of each image against all others, right where the person is the same."""
    scores = (features @ features.mT).fill_diagonal_(-2)
    person = torch.arange(len(features)) // 4
    hits = (person[scores.argsort(1, descending=True)[:, :-1]] == person[:, None]).double()
    ranked = hits.cumsum(1) / torch.arange(1, len(features))
    return ((ranked * hits).sum(1) / hits.sum(1)).mean()


CLAIMS = [
    Identity(
        "swap",
        says="An image and its mirror image may be swapped.",
        measure=swapped,
        bound=1e-12,
        breaks=one_sided,
        against="the feature of one side alone",
    ),
    Measured(
        "retrieval",
        says="It takes away the bias of the side that is seen: the mean average precision gains 0.05 or more.",
        measure=gain,
        wanted=above(0.05),
        control=partial(gain, bias=0.0),
        against="no bias of the side",
        number="gain of the mean average precision",
        draws=20,
        rule="mean",
        null=0.0,
        reach="proxy",
    ),
]
