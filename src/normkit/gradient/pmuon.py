"""PMuon: Muon of a momentum whose strong directions are held back on both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._bases import power_step
from normkit.gradient._matrices import cut_as, full_matrix
from normkit.gradient._muon import CONVERGING, Coefficients, Kin
from normkit.gradient._optimizer import Groups, below_one, settings
from normkit.gradient.dion import STARTS, first_columns

LEAST = 1e-6  # added to the statistics, the floor of an eigenvalue, and added to a length


@method(
    "pmuon",
    paper="PMuon (zzp1012, 2026), the third track of modded-nanogpt, result 18",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
    exempt={"kept-type float32": "statistics of less than full rank have no definite basis"},
)
class PMuon(Kin):
    """Divide a momentum on both sides by a power of its past size in each direction, then orthogonalize it.

    For asking whether curvature helps Muon: on modded-nanogpt's third track it took 3225 steps where Muon took 3325. It
    has no paper, and works out two orthogonal factors more a step. Where Muon's cost is to stay, take ``normuon``.

    With u Muon's momentum of a matrix of r rows and c columns, for its right side,

        S = u^T u,    C <- beta C + S,    K = S + beta C + 1e-6
        Q <- the orthogonal factor of K Q,    d_i = max(q_i^T K q_i, 1e-6)^-gamma
        P = Q diag(d) Q^T sqrt(c) / (|d| + 1e-6)

    likewise with u u^T and r for its left one, and then

        w <- w (1 - lr weight_decay) - lr sqrt(max(1, r / c)) NS(P_left u P_right)

    K counts the newest S twice, and 1e-6 does not follow the scale of the gradient, as in the authors' code. A kernel
    (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        gamma: the power; 0 is Muon.
        beta: the share of the old value in the statistics.
        start: the first bases: ``"random"``, the same for all matrices of one shape and on all processes, or
            ``"identity"``.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``, ``left``, ``right``, ``left_basis``, ``right_basis``; of Adam's:
    ``step``, ``exp_avg``, ``exp_avg_sq``.

    Of distributed tensors each process keeps its part of the momentum, and all statistics and bases.

    PMuon (2026), https://github.com/KellerJordan/modded-nanogpt.
    """

    state_names = Kin.state_names | {"left", "right", "left_basis", "right_basis"}

    exact = frozenset({"left", "right", "left_basis", "right_basis"})
    squares = 5.0  # K holds some twenty of them

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        gamma: float = 0.3,
        beta: float = 0.95,
        start: str = "random",
        ns_steps: int = 12,
        ns_coefficients: Coefficients = CONVERGING,
        ns_eps: float = 1e-7,
        ns_dtype: str | None = "bfloat16",
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "gamma", group["gamma"], 0.0)
        below_one(self, "beta", group["beta"])
        check.choice(self, "start", group["start"], STARTS)

    @torch._disable_dynamo
    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum and the statistics, and return the directions."""
        us = self.averaged(params, grads, states, group)
        evened = [cut_as(self.equalize(full_matrix(u), state, group), u) for u, state in zip(us, states, strict=True)]
        return self.directions(evened, lambda x: self.direction(x, group), group)

    def equalize(self, u: Tensor, state: dict, group: dict) -> Tensor:
        """Multiply a momentum on both sides by what holds its strong directions back."""
        if not u.numel():
            return u
        left, right = (self.divisor(x, name, state, group) for name, x in (("left", u.mT), ("right", u)))
        return left @ u @ right

    def divisor(self, u: Tensor, side: str, state: dict, group: dict) -> Tensor:
        """Move the statistic of a side and its basis, and return what the side is multiplied by."""
        product, count = u.mT @ u, u.shape[-1]
        past = state.setdefault(side, torch.zeros_like(product)).mul_(group["beta"]).add_(product)
        statistic = product + group["beta"] * past
        statistic.diagonal(dim1=-2, dim2=-1).add_(LEAST)
        basis = state.setdefault(f"{side}_basis", first_basis(product, group["start"]))
        basis = state[f"{side}_basis"] = power_step(statistic, basis)
        d = (basis * (statistic @ basis)).sum(-2, keepdim=True).clamp(min=LEAST).pow(-group["gamma"])
        return (basis * d) @ basis.mT * (count**0.5 / (d.norm(dim=-1, keepdim=True) + LEAST))


def first_basis(square: Tensor, start: str) -> Tensor:
    """A basis to begin with, for each matrix of a stack."""
    return torch.linalg.qr(first_columns(square, square.shape[-1], start)).Q
