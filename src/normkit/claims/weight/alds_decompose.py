"""What ALDS claims of splitting before the decomposition."""

import math
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.weight._digits import TRAINING, digits, started, trained
from normkit.optional import library

NETS, SHARE = 5, 0.4  # networks a draw; what a decomposition may hold of a weight's numbers


def error(weight, splits):
    """The relative error of a weight, of the largest rank that a share of its numbers allows."""
    rows, columns = weight.shape
    rank = math.floor(SHARE * weight.numel() / (splits * rows + columns))
    if not 1 <= rank <= min(rows, columns // splits):
        return math.inf
    return ((nk.ALDSDecompose(rank=rank, splits=splits)(weight)[0] - weight).norm() / weight.norm()).item()


def chance(seed, random=False):
    """The probability, were it chance, of so many layers in which 2 or 4 splits lose less than one."""
    x, labels = digits()
    better = []
    for _ in range(NETS):
        weights = started()
        if not random:
            weights = trained(weights, x[:TRAINING], labels[:TRAINING])
        better += [min(error(weight, 2), error(weight, 4)) < error(weight, 1) for weight in weights]
    return library("scipy.stats").binomtest(sum(better), len(better), alternative="greater").pvalue


CLAIMS = [
    Measured(
        "splits",
        says="Split before it is decomposed, a trained layer loses less at equal size, in most layers.",
        measure=chance,
        wanted=below(0.05),
        control=partial(chance, random=True),
        against="layers as they start",
        number="p of the sign test over 20 layers",
        draws=3,
        reach="proxy",
    )
]
