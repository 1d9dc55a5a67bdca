"""Conda: Adam in the coordinates of a matrix's own directions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._matrices import MatrixOptimizer
from normkit.gradient._optimizer import (
    MOMENTS,
    Groups,
    add_quotients,
    count,
    entrywise,
    keep,
    move_moments,
    multiply,
    settings,
)
from normkit.gradient._sharded import is_any, local, place, shared_bases
from normkit.gradient.grams import corrected_rate
from normkit.statistics import accurate


@method(
    "conda",
    paper="Conda: Column-Normalized Adam for Training Large Language Models Faster (Wang et al., 2025), "
    "arXiv 2509.24218",
    shape="...",
    replaces=("adam", "adamw"),
)
class Conda(MatrixOptimizer):
    """Take Adam's second moment in the basis of the momentum's singular vectors.

    For pretraining language models where steps are costly: in the paper fewer than AdamW takes. Each matrix needs a
    basis besides Adam's moments. ``soap`` has bases on both sides and turns them more often; ``muon`` needs none.

    There the entries of a matrix's step depend on each other less, so that dividing each by its own size evens out the
    directions as well. With M the first moment of a matrix of m rows and n columns, every update_proj_gap steps from
    the first one,

        Q = right singular vectors of M (n, n) if m >= n, else the left ones (m, m);    P(X) = X Q, or Q^T X
        v <- b2 v + (1 - b2) P(g)^2,    N = scale * (P(M) / (sqrt(v) + eps), turned back)
        w <- w - lr sqrt(1 - b2^t) / (1 - b1^t) N,    then w <- w (1 - lr weight_decay)

    v is not turned when the basis changes. What has not exactly two axes, and groups whose ``update_proj_gap`` is None,
    get the same without a basis and without ``scale``.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        eps: added to the root of the second moment, which is not corrected for its start.
        weight_decay: the share of a weight that is taken off after a step, times the learning rate.
        correct_bias: correct the moments for their start at 0, in the rate.
        update_proj_gap: steps from one basis to the next; None: no basis.
        scale: the share of the learning rate that matrices get; the authors take 0.25.
        sync: share the work on bases out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on vectors of a group together; None: not on CPU.

    State of a parameter: ``step``, ``exp_avg``, ``exp_avg_sq``; of matrices, also ``projector``.

    Distributed tensors need no argument: each basis is worked out by one process of their mesh.

    Conda (Wang et al., 2025), arXiv 2509.24218. Differs from the authors' code in: singular vectors have the type of
    the parameter where it is float32 or float64; there always float32. A matrix takes its first basis, and
    counts its steps, from its first gradient that is not zero; there from zeros too, as LoRA's first matrix begins.
    """

    state_names = MOMENTS | {"projector"}

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        update_proj_gap: int | None = 2000,
        scale: float = 1.0,
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
        check.number(self, "scale", group["scale"], 0.0)
        if group["update_proj_gap"] is not None:
            check.size(self, "update_proj_gap", group["update_proj_gap"])

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether a parameter has two axes, and its group a basis."""
        return p.dim() == 2 and group["update_proj_gap"] is not None

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        steps, firsts, seconds = keep(params, states, "step", "exp_avg", "exp_avg_sq")
        numbers = count(steps)
        beta, beta_square = group["betas"]
        entrywise(lambda ms, gs: torch._foreach_lerp_(ms, gs, 1 - beta), firsts, grads)
        self.refresh(firsts, states, numbers, group)
        for w, g, m, v, state, t in zip(params, grads, firsts, seconds, states, numbers, strict=True):
            basis = state["projector"]
            turned = place(turn(g, basis), w)
            v.mul_(beta_square).addcmul_(turned, turned, value=1 - beta_square)
            direction = turn_back(place(turn(m, basis), w).div_(v.sqrt().add_(group["eps"])), basis)
            w.add_(place(direction, w), alpha=-group["scale"] * corrected_rate(group, t))
            if group["weight_decay"]:
                w.mul_(1 - group["lr"] * group["weight_decay"])

    def refresh(self, firsts: list[Tensor], states: list[dict], numbers: list[Any], group: dict) -> None:
        """Work out the bases whose time has come."""
        gap = group["update_proj_gap"]
        first = [i for i, t in enumerate(numbers) if int(t) == 1]
        idle = {i for i in first if not is_any(local(firsts[i]).any(), [firsts[i]])}
        for i in idle:
            states[i]["step"].zero_()  # it begins with a gradient that has directions
        due = [
            i
            for i, t in enumerate(numbers)
            if "projector" not in states[i] or (i not in idle and (int(t) - 1) % gap == 0)
        ]
        bases = shared_bases([firsts[i] for i in due], basis, sync=self.sync, process_group=self.process_group)
        for i, q in zip(due, bases, strict=True):
            states[i]["projector"] = q

    def move_others(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move what has no basis."""
        steps, firsts, seconds = keep(params, states, "step", "exp_avg", "exp_avg_sq")
        rates = [-corrected_rate(group, t) for t in count(steps)]

        def work(params, grads, firsts, seconds, rates):
            move_moments(grads, firsts, seconds, group["betas"])
            below = torch._foreach_sqrt(seconds)
            torch._foreach_add_(below, group["eps"])
            add_quotients(params, firsts, below, rates)
            if group["weight_decay"]:
                multiply(params, 1 - group["lr"] * group["weight_decay"])

        entrywise(work, params, grads, firsts, seconds, rates)


def basis(m: Tensor) -> Tensor:
    """The singular vectors of the shorter side, (columns, columns) or (rows, rows)."""
    left, _, right = torch.linalg.svd(accurate(m), full_matrices=False)
    return (right.mT if m.shape[0] >= m.shape[1] else left).to(m.dtype).contiguous()


def turn(x: Tensor, basis: Tensor) -> Tensor:
    """Write a matrix in the basis of its shorter side."""
    return x @ basis if x.shape[0] >= x.shape[1] else basis.mT @ x


def turn_back(x: Tensor, basis: Tensor) -> Tensor:
    """Write a matrix in its own coordinates again."""
    return x @ basis.mT if x.shape[0] >= x.shape[1] else basis @ x
