"""What LieBN claims under each metric."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn
from normkit.manifold import _mean, _symmetric

N, WAYS = 3, ("LEM", "LCM", "AIM")


def matrices(spread=0.2):
    """Positive definite matrices around one that is not the identity."""
    root = torch.linalg.cholesky(torch.diag(torch.tensor([4.0, 1.0, 0.5], dtype=torch.float64)) + 0.3)
    away = spread * randn(40, N, N)
    return root @ torch.matrix_exp(away + away.mT) @ root.mT


def charted(x, metric):
    """The matrices around the identity, where distances are lengths."""
    if metric == "LCM":
        factor = torch.linalg.cholesky(x)
        return factor.tril(-1) + torch.diag_embed(factor.diagonal(0, -2, -1).log())
    return _symmetric.log(x)


def error(seed, metric, of, normalized=True):
    """How far the mean is from the identity, or the variance from 1."""
    x = matrices()
    y = nk.LieBN(N, metric=metric, eps=0.0, karcher_steps=20).double()(x) if normalized else x
    if of == "mean":
        mean = charted(_mean.mean(y), metric) if metric == "AIM" else charted(y, metric).mean(0)
        return mean.norm()
    return (charted(y, metric).square().sum((-2, -1)).mean() - 1).abs()


CLAIMS = [
    Identity(
        f"{of}-{metric.lower()}",
        says=f"Under {metric} the output's {'Fréchet mean is the identity' if of == 'mean' else 'variance is 1'}.",
        measure=partial(error, metric=metric, of=of),
        bound=1e-4 if metric == "AIM" else 1e-8,
        breaks=partial(error, metric=metric, of=of, normalized=False),
        against="the matrices as they came",
        number="distance" if of == "mean" else "error",
    )
    for metric in WAYS
    for of in ("mean", "variance")
]
