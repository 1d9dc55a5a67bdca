"""What is claimed of decoders that normalize a token at a time."""

import itertools
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity, Measured, above
from normkit.claims.measures import randn

WORDS, LENGTH = 6, 4
TEXTS = torch.tensor(list(itertools.product(range(WORDS), repeat=LENGTH)))


def split(**options):
    """The distortion of all texts of four words out of six, under a model of pairs of words."""
    table = 2 * randn(WORDS + 1, WORDS)
    before = torch.cat([torch.full_like(TEXTS[:, :1], WORDS), TEXTS[:, :-1]], 1)
    return nk.local_normalization_distortion(table[before], TEXTS, **options)


def variation(one, other):
    """Half the summed difference of two distributions over texts, of their logarithms."""
    return (one.softmax(0) - other.softmax(0)).abs().sum() / 2


def distance(seed, k=3):
    """The total variation between the decoder and one that is normalized over whole texts."""
    logs = split(mode="top_k", k=k)
    return variation(logs.log_local, logs.log_global)


def left(seed, weighted=True):
    """The same behind the weights."""
    logs = split(mode="top_k", k=3)
    less = torch.where(logs.log_local.isfinite(), logs.log_distortion, 0)
    return variation(logs.log_local - less if weighted else logs.log_local, logs.log_global)


def spread(options):
    """The deviation of the distortion over the decoder's own texts."""
    logs = split(**options)
    chance = logs.log_local.exp()
    mean = (chance * logs.log_distortion).sum()
    return (chance * (logs.log_distortion - mean).square()).sum().sqrt()


def difference(seed, other=None):
    """The spread under top-k of 3 of the 6 words, or another decoder, less that under a nucleus of 0.9."""
    own = spread({"mode": "top_k", "k": 3} if other is None else other)
    torch.manual_seed(seed)
    return own - spread({"mode": "nucleus", "p": 0.9})


CLAIMS = [
    Measured(
        "distorts",
        says="The law of texts under top-k is 0.02 and more in total variation from the one normalized over texts.",
        measure=distance,
        wanted=above(0.02),
        control=partial(distance, k=WORDS),
        against="no truncation",
        number="total variation",
        rule="mean",
        null=0.0,
    ),
    Identity(
        "weights",
        says="Weights of exp(-log_distortion) lead from one to the other.",
        measure=left,
        bound=1e-12,
        breaks=partial(left, weighted=False),
        against="no weights",
        number="total variation",
    ),
    Measured(
        "top-k-more",
        says="The distortion varies more over texts of top-k of 3 than of a nucleus of 0.9.",
        measure=difference,
        wanted=above(0.0),
        control=partial(difference, other={"mode": "nucleus", "p": 0.99}),
        against="a nucleus of 0.99",
        number="difference of the deviations",
        draws=20,
        rule="mean",
    ),
]
