"""PA&DA's sampling of paths: by the lengths of operations' gradients."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient.panda_data_probability import PAPER, mix
from normkit.statistics import accurate


@method("panda-path-probability", paper=PAPER, shape="K : unit", over="K")
def panda_path_probability(norms: Tensor, *, tau: float = 0.5) -> Tensor:
    """Return the probability to draw each operation of an edge: its gradient's share, mixed with an equal one.

    For training a supernet, where paths with long gradients are drawn more often.

        probability = tau norms / sum(norms) + (1 - tau) / K

    Operations without parameters have norm 0, and are hardly drawn as tau nears 1. If all are 0 it is equal for all.
    The authors take ``tau = epoch / epochs``.

    Args:
        norms: of the operations, from ``panda-operation-norm``, (K,).
        tau: the share that goes by the lengths.

    PA&DA (Lu et al., 2023), arXiv 2302.14772.
    """
    check.values("panda-path-probability", "norms", norms, (None,), norms)
    tau = check.number("panda-path-probability", "tau", tau, 0.0, 1.0)
    return mix(accurate(norms), tau).to(norms.dtype)
