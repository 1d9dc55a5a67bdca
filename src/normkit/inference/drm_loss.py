"""DRM's loss: a head for each training domain, and one for all."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores


@method(
    "drm-loss",
    paper="Domain-Specific Risk Minimization for Out-of-Distribution Generalization (Zhang et al., 2023), arXiv "
    "2208.08661",
    shape="S N C",
    over="",
    inputs={"shared_logits": "S N C", "target": "S N : index C"},
    invariant=("shift",),
)
def drm_loss(own_logits: Tensor, shared_logits: Tensor, target: Tensor) -> Tensor:
    """Average the cross-entropies of each domain's own head and of the shared head on the domain's samples.

    For training on several known domains, with a head for each, where one classifier for all would lose what is
    particular to each. ``drm-ensemble`` weighs the heads at test time. With a single domain one head is enough.

        mean over domains of (CE(own) + CE(shared)) / 2

    Args:
        own_logits: of the domain's head, (D, N, C).
        shared_logits: of the shared head on the same samples, (D, N, C).
        target: classes, int64 (D, N).

    Domain-Specific Risk Minimization (Zhang et al., 2023), arXiv 2208.08661.
    """
    own = scores("drm-loss", "own_logits", own_logits, (None, None, None))
    shared = scores("drm-loss", "shared_logits", shared_logits, own_logits.shape, own_logits)
    check.index("drm-loss", "target", target, own_logits.shape[:2], own_logits.shape[2], own_logits)
    if not target.numel():
        raise ValueError("drm-loss: target must not be empty")
    both = torch.cat([own.flatten(0, 1), shared.flatten(0, 1)])
    return F.cross_entropy(both, target.flatten().repeat(2)).to(own_logits.dtype)
