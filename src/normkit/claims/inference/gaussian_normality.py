"""What is claimed of Gaussians of features, for digits of classes that were never seen."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import case, passed
from normkit.optional import library

SEEN = 8


def separation(seed, reduction, new=True):
    """The area under the curve of the distance, for digits of classes 8 and 9; or of digits that were seen."""
    own = case(seed, classes=SEEN)
    first, held = (passed(own.weights, x)[-2].detach() for x in (own.x[own.labels < SEEN], own.held))
    other = own.right >= SEEN if new else torch.rand(len(held)) < 0.2
    used = torch.ones_like(other) if new else own.right < SEEN
    if reduction == "z-scores":
        distance = ((held - first.mean(0)) / (first.std(0) + 1e-6)).norm(dim=1)
    else:
        distance = nk.GaussianNormality(reduction=reduction).double().fit(first)(held)
    return library("sklearn.metrics").roc_auc_score(other[used].numpy(), distance[used].numpy())


def gain(seed, one, other, new=True):
    """The area's difference."""
    torch.manual_seed(seed)
    first = separation(seed, one, new)
    torch.manual_seed(seed)
    return first - separation(seed, other, new)


CLAIMS = [
    Trained(
        "small-variances",
        says="Directions of small variance separate new classes better than those of large variance, by 0.02 or more.",
        measure=partial(gain, one="npca", other="pca"),
        wanted=above(0.02),
        control=partial(gain, one="npca", other="pca", new=False),
        against="digits of seen classes in the place of new ones",
        number="difference of the areas",
        bed="trained-digits",
    ),
    Trained(
        "whole-covariance",
        says="The whole covariance separates them no worse than each feature's own variance.",
        measure=partial(gain, one=None, other="z-scores"),
        wanted=above(0.0),
        control=partial(gain, one="pca", other=None),
        against="directions of large variance beside the whole",
        number="difference of the areas",
        null=None,
        bed="trained-digits",
    ),
]
