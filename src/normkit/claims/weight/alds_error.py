"""What ALDS claims of its error."""

from functools import partial

from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.weight._digits import TRAINING, digits, passed, started, trained
from normkit.optional import library

SHARES = (0.1, 0.2, 0.35, 0.5, 0.7)


def order(seed, bound=True):
    """Spearman's correlation, over layers and ranks, of a guess and the error of outputs on held-out samples."""
    x, labels = digits()
    weights = trained(started(), x[:TRAINING], labels[:TRAINING])
    inputs, guesses, errors = passed(weights, x[TRAINING:]), [], []
    for weight, own in zip(weights, inputs, strict=False):
        y, curve = F.linear(own, weight), nk.alds_error(weight, splits=2)
        full = min(len(weight), weight.shape[1] // 2)
        for rank in sorted({max(1, round(share * full)) for share in SHARES} - {full}):
            cut = nk.ALDSDecompose(rank=rank, splits=2)(weight)[0]
            errors.append(((F.linear(own, cut) - y).norm() / y.norm()).item())
            guesses.append((curve[rank] if bound else weight.norm()).item())
    return library("scipy.stats").spearmanr(guesses, errors).statistic


CLAIMS = [
    Measured(
        "order",
        says="Its bound orders layers and ranks as the error of their outputs does.",
        measure=order,
        wanted=above(0.8),
        control=partial(order, bound=False),
        against="the layer's Frobenius norm alone",
        number="Spearman's correlation",
        draws=5,
    )
]
