"""RMNP: Muon with the lengths of rows in place of singular values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.gradient._matrices import MatrixOptimizer
from normkit.gradient._muon import factor, step
from normkit.gradient._optimizer import MOMENTS, Groups, entrywise, keep, multiply, settings
from normkit.gradient._sharded import reduce

FLOOR = 1e-12


@method(
    "rmnp",
    paper="RMNP: Row-Momentum Normalized Preconditioning for Scalable Matrix-Based Optimization (Deng et al., "
    "2026), arXiv 2603.20527",
    shape="...",
    replaces=("muon", "adamw"),
)
class RMNP(MatrixOptimizer):
    """Make each row of the momentum of a matrix 1 long, then step.

    For large matrices, where Muon's orthogonalization costs too much: in the paper it is as good at the cost of SGD.
    ``dion2`` still orthogonalizes, a share of the rows a step.

    A tensor is the matrix (first axis, rest), of r rows and c columns:

        b <- momentum b + g,    u = g + momentum b with nesterov, else g
        w <- w (1 - lr weight_decay) - lr sqrt(max(1, r / c)) (each row of u / max(its length, 1e-12))

    Tensors of fewer than two axes, and groups with ``use_adam=True`` (embeddings, heads), get Adam.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        nesterov: look ahead along the momentum; False: the gradient alone, as in the authors' code.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        betas: of Adam.
        eps: of Adam.
        use_adam: give all parameters Adam.
        maximize: go up instead of down.
        foreach: work on the momenta of a group together; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    RMNP (2026), arXiv 2603.20527.
    """

    state_names = MOMENTS | {"momentum_buffer"}

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        use_adam: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether a parameter has two axes at least, and its group does not ask for Adam."""
        return p.dim() > 1 and not group["use_adam"]

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        (buffers,) = keep(params, states, "momentum_buffer")

        def work(buffers, grads):
            multiply(buffers, group["momentum"])
            torch._foreach_add_(buffers, grads)

        entrywise(work, buffers, grads)
        us: list[Any] = grads
        if group["nesterov"]:
            us = [g + group["momentum"] * b for g, b in zip(grads, buffers, strict=True)]
        rates = [group["lr"] * factor("original", p.shape[0], p.shape[1:].numel()) for p in params]
        step(params, [even_rows(u) for u in us], rates, group)


def even_rows(u: Tensor) -> Tensor:
    """Make each row, all but the first axis, 1 long."""
    length = torch.linalg.vector_norm(u, dim=tuple(range(1, u.dim())), keepdim=True)
    return u / reduce(length).clamp(min=FLOOR)
