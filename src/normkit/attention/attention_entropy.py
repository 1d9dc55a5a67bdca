"""How spread out attention is, and how little it can be for scores of a given spectral norm.

Entropy that collapses towards 0 goes with training that diverges; the bound says what growth of the weights allows it.
Stabilizing Transformer Training by Preventing Attention Entropy Collapse (Zhai et al., 2023), arXiv 2303.06296.

>>> attention_entropy(torch.full((1, 1, 2, 4), 0.25))      # ln 4: all keys alike
tensor([[1.3863]])
>>> entropy_lower_bound(torch.tensor([0.0, 2.0]), 4)
tensor([1.3863, 0.7909])
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "attention-entropy",
    paper="Stabilizing Transformer Training by Preventing Attention Entropy Collapse (Zhai et al., 2023), "
    "arXiv 2303.06296",
    evidence="equations",
    shape="N K T C : simplex",
    over="C",
)
def attention_entropy(weights: Tensor, *, reduce: bool = True) -> Tensor:
    """Return the entropy of rows that sum to 1, in nats: (N, heads) means over the queries, or (N, heads, T).

    For watching a transformer while it trains: in the paper, entropy that collapses goes with training that diverges.
    It tells and does not mend; ``sigma-reparam`` and ``qk-norm`` bound the scores that let it fall.

    A weight of 0 adds nothing and gets a gradient of 0. Under a causal mask row i holds at most ln(i + 1): divide by
    that to compare rows. Half precision gives float32.

    Args:
        weights: (N, heads, T, S).
        reduce: take the mean over the queries.
    """
    check.values("attention_entropy", "weights", weights, (None, None, None, None), weights)
    weights = accurate(weights)
    rows = -(weights * torch.where(weights > 0, weights, 1).log()).sum(-1)
    return rows.mean(-1) if reduce else rows


def entropy_lower_bound(sigma: Tensor, length: int | Tensor) -> Tensor:
    """Return the least entropy of a row of ``length`` keys whose scores x W_q W_kᵀ xᵀ have spectral norm ``sigma``.

        b = exp(-sigma sqrt(T / (T - 1))),    ln(1 + (T - 1) b) + sigma sqrt(T (T - 1)) b / (1 + (T - 1) b)

    It is reached by one score of sigma sqrt((T - 1) / T) and T - 1 of -sigma / sqrt(T (T - 1)), and falls like
    sigma T exp(-sigma). A factor such as 1 / sqrt(head_dim) on the scores belongs into sigma.

    Args:
        sigma: any shape, which the result has.
        length: the number of keys T, at least 1: an integer, or a tensor of them that broadcasts to sigma.
    """
    check.floating("entropy_lower_bound", sigma, "sigma")
    sigma = accurate(sigma)
    if isinstance(length, Tensor):
        _check_lengths(length, sigma)
    else:
        length = torch.tensor(check.size("entropy_lower_bound", "length", length))
    keys = length.to(sigma)
    others = (keys - 1).clamp(min=1)
    ratio = (-sigma * (keys / others).sqrt()).exp()
    total = 1 + others * ratio
    bound = total.log() + sigma * (keys * others).sqrt() * ratio / total
    return torch.where(keys > 1, bound, 0)


def spectral_bound(x: Tensor, query_weight: Tensor, key_weight: Tensor) -> Tensor:
    """Return ``|W_k W_qᵀ|₂ |x xᵀ|₂``, the sigma of :func:`entropy_lower_bound`, of shape (N,).

    Args:
        x: the tokens that attention is about to see, (N, T, dim).
        query_weight: of the query projection of a head, as torch's linear keeps it, (head_dim, dim).
        key_weight: of the key projection, the same shape.
    """
    check.floating("spectral_bound", x)
    check.shape("spectral_bound", "x", x, (None, None, None))
    check.values("spectral_bound", "query_weight", query_weight, (None, x.shape[2]), x)
    check.values("spectral_bound", "key_weight", key_weight, query_weight.shape, x)
    x, query_weight, key_weight = (accurate(t) for t in (x, query_weight, key_weight))
    return _largest(query_weight.mT @ key_weight) * _largest(x).square()


def _check_lengths(length: Tensor, sigma: Tensor) -> None:
    """Require numbers of keys that broadcast to sigma, and where they can be read, that are 1 or more."""
    check.broadcasts("entropy_lower_bound", "length", length, sigma, "sigma")
    if type(length) is Tensor and check.readable(length) and not (length >= 1).all():
        raise ValueError(f"entropy_lower_bound: length must be at least 1, not {length.min().item()}")


def _largest(matrix: Tensor) -> Tensor:
    """The largest singular value."""
    return torch.linalg.matrix_norm(matrix, 2)
