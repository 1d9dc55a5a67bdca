"""Dion: orthogonal steps of low rank, with what they leave out kept for later."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._matrices import Hidden, cut_as, full_matrix, matrix_shape
from normkit.gradient._muon import factor, step
from normkit.gradient._optimizer import Groups, keep, settings

STARTS = ("random", "identity")


@method(
    "dion",
    paper="Dion: Distributed Orthonormalized Updates (Ahn et al., 2025), arXiv 2504.05295",
    shape="N C",
    replaces=("muon",),
)
class Dion(Hidden):
    """Step along a few orthogonal directions of the momentum, and take off it only what the step has used.

    For large matrices: the lower the rank k, the less a step costs and sends between processes. Where all directions
    are affordable, take ``muon``.

    With g the gradient of a matrix of r rows and c columns, and Q (c, k) of the step before,

        M <- M + g,    P = the orthogonal factor of M Q,    R = M^T P
        M <- M - (1 - momentum) P R^T
        Q <- R, each column divided by (its length + eps)
        w <- w (1 - lr weight_decay) - lr sqrt(r / c) P Q^T

    At full rank this is not Muon: the columns of Q have length 1, and need not be orthogonal. While a momentum is zero
    its weight only decays. A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of
    matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of what a step has used that stays in the momentum.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        rank: k, at most; never more than rows or columns.
        eps: added to the length of a column that is divided by it.
        start: the first Q: ``"random"``, normal numbers, the same for all matrices of one shape and on all processes;
            or ``"identity"``, columns of the identity.
        maximize: go up instead of down.
        foreach: as in all optimizers; each parameter is worked on alone.

    State of a parameter: ``momentum``, ``Q``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Of distributed tensors each process keeps its part of the momentum, and all of Q.

    Dion (Ahn et al., 2025), arXiv 2504.05295.
    """

    exact = frozenset({"Q"})

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        rank: int = 768,
        eps: float = 1e-8,
        start: str = "random",
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.size(self, "rank", group["rank"])
        check.choice(self, "start", group["start"], STARTS)

    @torch._disable_dynamo
    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        (momenta,) = keep(params, states, "momentum")
        torch._foreach_add_(momenta, grads)
        us = [self.one(p, m, state, group) for p, m, state in zip(params, momenta, states, strict=True)]
        step(params, us, [group["lr"] * factor("rms_to_rms", *matrix_shape(p)) for p in params], group)

    def one(self, p: Tensor, momentum: Tensor, state: dict, group: dict) -> Tensor:
        """Take what is used off a momentum, and return the direction."""
        m = full_matrix(momentum)
        if "Q" not in state:
            state["Q"] = first_columns(m, group["rank"], group["start"])
        left = torch.linalg.qr(m @ state["Q"]).Q
        right = m.mT @ left
        momentum.copy_(cut_as(m - (1 - group["momentum"]) * (left @ right.mT), p))
        columns = right / (right.norm(dim=-2, keepdim=True) + group["eps"])
        state["Q"] = torch.where((m != 0).any((-2, -1), keepdim=True), columns, state["Q"])
        return cut_as(left @ columns.mT, p)


def first_columns(m: Tensor, rank: int, start: str) -> Tensor:
    """Columns to begin with, for each matrix of a stack.

    >>> first_columns(torch.ones(2, 3), 1, "identity").T
    tensor([[1., 0., 0.]])
    """
    shape = (*m.shape[:-2], m.shape[-1], min(rank, *m.shape[-2:]))
    if start == "identity":
        columns = torch.eye(*shape[-2:], dtype=m.dtype, device=m.device)
    else:
        generator = torch.Generator().manual_seed(0)  # replicas must not differ
        columns = torch.randn(shape[-2:], generator=generator, dtype=torch.float64, device="cpu").to(m)
    return columns.expand(shape).clone()
