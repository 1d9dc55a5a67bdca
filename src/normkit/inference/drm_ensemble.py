"""DRM's ensemble: heads of training domains, weighted by how sure they are."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores


@method(
    "drm-ensemble",
    paper="Domain-Specific Risk Minimization for Out-of-Distribution Generalization (Zhang et al., 2023), arXiv "
    "2208.08661",
    shape="S N C",
    over="S C",
    invariant=("shift",),
)
def drm_ensemble(logits: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Average the heads' probabilities, each weighted by a power of its entropy.

    For a sample of a domain that was not trained on. It needs the heads that ``drm-loss`` trains.

    With p the softmax of a head, H its entropy, and the shared head last,

        gamma >= 0: sum over the domains' heads of w p,   w = H^-gamma over the sum of all heads
        gamma < 0: p of the head with the least entropy, the first of equal ones

    The shared head takes part in the sum of weights alone, so that a row sums to less than 1, as the authors have it.

    Args:
        logits: of the heads, the shared one last, (H, N, C).
        gamma: the power.

    Returns (N, C). Domain-Specific Risk Minimization (Zhang et al., 2023), arXiv 2208.08661.
    """
    wide = heads("drm-ensemble", logits)
    return weigh(wide, check.number("drm-ensemble", "gamma", gamma)).to(logits.dtype)


def heads(owner: str, logits: Tensor) -> Tensor:
    """Require logits (H, N, C) of at least one head, in the accurate type."""
    wide = scores(owner, "logits", logits, (None, None, None))
    if not len(logits):
        raise ValueError(f"{owner}: logits must be of at least one head, but their shape is {tuple(logits.shape)}")
    return wide


def weigh(logits: Tensor, gamma: float) -> Tensor:
    """Return the ensemble's probabilities (N, C)."""
    known = torch.log_softmax(logits, 2)
    p = known.exp()
    entropy = -torch.where(p > 0, p * known, 0).sum(2)
    if gamma < 0:
        best = entropy.argmin(0)
        return p.gather(0, best[None, :, None].expand(1, -1, p.shape[2])).squeeze(0)
    # powers by their logarithms: an entropy that is next to 0 would overflow
    weights = torch.softmax(-gamma * entropy.clamp(min=torch.finfo(entropy.dtype).tiny).log(), 0)
    return (weights.unsqueeze(2) * p)[:-1].sum(0)
