"""SinkGD: a gradient whose rows and columns are made equally long in turn."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._matrices import MatrixOptimizer
from normkit.gradient._muon import step
from normkit.gradient._optimizer import MOMENTS, Groups, settings
from normkit.gradient._sharded import is_sharded, lengths_along, local

FLOOR = 1e-8


@method(
    "sinkgd",
    paper="Gradient Multi-Normalization for Stateless and Scalable LLM Training (Scetbon et al., 2025), "
    "arXiv 2502.06742",
    evidence="equations",
    shape="...",
    provenance="the paper's equations, in float64; no code of the authors was found",
    replaces=("adamw",),
)
class SinkGD(MatrixOptimizer):
    """Make the rows of a gradient equally long, then its columns, a few times over; keep no state.

    For large models: Adam's speed with the memory of plain descent. It has no momentum: where that is wanted take
    ``muon`` or ``lion``.

    Of a gradient X with m rows and n columns, num_iters times, lengths floored at 1e-8,

        X <- sqrt(n) X / (length of each row),    X <- sqrt(m) X / (length of each column)

    and then w <- w (1 - lr weight_decay) - lr scale X: entries of lr scale in the root mean square. What has not
    exactly two axes, and groups with ``use_adam=True`` (embeddings, heads), get Adam, without ``scale``.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        num_iters: how often rows and columns are made equal.
        scale: the share of the learning rate that matrices get; the paper's is 0.05 of 0.02.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        betas: of Adam.
        eps: of Adam.
        use_adam: give all parameters Adam.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape together; None: yes.

    State of a parameter: none; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Distributed tensors need no argument: the lengths of their rows and columns are summed over their mesh.

    Gradient Multi-Normalization (Scetbon et al., 2025), arXiv 2502.06742.
    """

    state_names = MOMENTS
    later = frozenset({"num_iters"})

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        num_iters: int = 5,
        scale: float = 1.0,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        use_adam: bool = False,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.size(self, "num_iters", group["num_iters"], least=0, most=1000)
        check.number(self, "scale", group["scale"], 0.0)

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether a parameter has two axes, and its group does not ask for Adam."""
        return p.dim() == 2 and not group["use_adam"]

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        work = lambda x: balanced(x, group["num_iters"])  # noqa: E731
        updates = list(map(work, grads)) if is_sharded(grads) else self.directions(grads, work, group)
        step(params, updates, [group["lr"] * group["scale"]] * len(params), group)


def balanced(x: Tensor, rounds: int) -> Tensor:
    """Make the rows and columns of matrices (..., rows, columns) equally long in turn."""
    x = x.clone() if rounds else x
    own = local(x)
    for _ in range(rounds):
        for axis in (-1, -2):
            (length,) = lengths_along([x], axis)
            own.mul_(math.sqrt(x.shape[axis]) / local(length).clamp(min=FLOOR))
    return x
