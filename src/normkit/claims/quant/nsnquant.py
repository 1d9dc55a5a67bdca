"""What NSNQuant claims of its entries."""

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn


def keys():
    """Keys with heavy channels and a mean, and tokens of many sizes."""
    return (0.3 * randn(512, 1)).exp() * (randn(512, 64) * randn(64).exp() + 2 * randn(64))


def distance(x):
    """Kolmogorov and Smirnov's distance of all entries, divided by their deviation, from the standard normal law."""
    sorted_entries = (x / x.std()).flatten().sort().values
    law = torch.special.ndtr(sorted_entries)
    place = torch.arange(1, len(law) + 1, dtype=torch.float64) / len(law)
    return (place - law).abs().max()


def normalized(seed):
    """Behind the three steps and the rotation."""
    return distance(nk.NSNQuant(64).double()(keys())[0])


def raw(seed):
    """Of the keys as they are."""
    return distance(keys())


CLAIMS = [
    Measured(
        "standard-normal",
        says="Entries become nearly standard normal, whatever the keys.",
        measure=normalized,
        wanted=below(0.05),
        control=raw,
        against="the keys, divided by their deviation",
        number="KS distance",
    )
]
