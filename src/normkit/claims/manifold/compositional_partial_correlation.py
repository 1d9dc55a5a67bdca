"""What is claimed of partial correlations of parts."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn


def changes(function):
    """What changes with another reference, and with another total of each row."""
    x, order, totals = randn(20, 5).exp(), torch.randperm(5), randn(20, 1).exp()
    baseline = function(x)
    return max(gap(function(x[:, order]), baseline[order][:, order]), gap(function(totals * x), baseline))


def of_ratios(seed):
    """Of the correlations of log-ratios."""
    return changes(lambda x: nk.compositional_partial_correlation(x)[0])


def of_logarithms(seed):
    """Of partial correlations of the logarithms of the parts."""

    def correlations(x):
        precision = torch.linalg.inv(torch.cov(x.log().mT))
        scale = precision.diagonal().sqrt()
        return -precision / (scale * scale[:, None])

    return changes(correlations)


CLAIMS = [
    Identity(
        "reference-and-total",
        says="Nothing depends on the part that ratios are taken to, or on the total of a row.",
        measure=of_ratios,
        bound=1e-12,
        breaks=of_logarithms,
        against="partial correlations of the logarithms of the parts",
    )
]
