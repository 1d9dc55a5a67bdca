"""SWAN: a gradient whose rows are normalized and whose directions are made equally large."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._matrices import MatrixOptimizer
from normkit.gradient._muon import step
from normkit.gradient._optimizer import MOMENTS, Groups, settings
from normkit.statistics import accurate

FLOOR = 1e-8
RANK = 1e-7  # singular values below this share of the largest are noise


@method(
    "swan",
    paper="SWAN: SGD with Normalization and Whitening Enables Stateless LLM Training (Ma et al., 2024), "
    "arXiv 2412.13148",
    evidence="equations",
    shape="...",
    provenance="the paper's equations, in float64; no code of the authors was found",
    replaces=("adamw",),
)
class SWAN(MatrixOptimizer):
    """Normalize the rows of a gradient, then whiten them; keep no state.

    For large models, as SinkGD, at more work a step. Of a gradient G with rows (outputs) over columns,

        N = (G - mean of the row) / (its biased deviation),    or G / (its root mean square) without ``center``
        W = (N N^T)^(-1/2) N,    then times |N| / |W| with ``rescale``
        w <- w (1 - lr weight_decay) - lr scale W

    Whitening is exact, by singular values: those at or below 1e-7 of the largest, or of the size of rounding, add
    nothing. What has not exactly two axes, and groups with ``use_adam=True``, get Adam, without ``scale``.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        center: take the mean off the rows.
        rescale: give the whitened matrix the length of the normalized one.
        scale: the share of the learning rate that matrices get.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        betas: of Adam.
        eps: of Adam.
        use_adam: give all parameters Adam.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape together; None: yes.

    State of a parameter: none; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    SWAN (Ma et al., 2024), arXiv 2412.13148. Differs from the paper in: singular values in the place of the iteration
    that comes near them.
    """

    state_names = MOMENTS

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        center: bool = True,
        rescale: bool = True,
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
        check.number(self, "scale", group["scale"], 0.0)

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether a parameter has two axes, and its group does not ask for Adam."""
        return p.dim() == 2 and not group["use_adam"]

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        directions = self.directions(grads, lambda x: whiten(x, group["center"], group["rescale"]), group)
        step(params, directions, [group["lr"] * group["scale"]] * len(params), group)


def whiten(x: Tensor, center: bool, rescale: bool) -> Tensor:
    """Normalize the rows of matrices (..., rows, columns), then make their singular values equal."""
    wide = accurate(x)
    wide = wide - wide.mean(-1, keepdim=True) if center else wide
    wide = wide / wide.square().mean(-1, keepdim=True).sqrt().clamp(min=FLOOR)
    left, sizes, right = torch.linalg.svd(wide, full_matrices=False)
    kept = sizes > max(RANK, 16 * torch.finfo(wide.dtype).eps) * sizes.amax(-1, keepdim=True)
    white = (left * kept[..., None, :]) @ right
    if rescale:
        axes = (-2, -1)
        white = white * (wide.norm(dim=axes, keepdim=True) / white.norm(dim=axes, keepdim=True).clamp(min=FLOOR))
    return white.to(x.dtype)
