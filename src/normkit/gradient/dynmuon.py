"""DynMuon: a step whose singular values are a power of the momentum's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._muon import CONVERGING, Coefficients, Kin
from normkit.gradient._optimizer import Groups, settings


@method(
    "dynmuon",
    paper="DynMuon: A Dynamic Spectral Shaping View of Muon (Wu et al., 2026), arXiv 2605.17109",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
    provenance="its entry in the third track of modded-nanogpt",
)
class DynMuon(Kin):
    """Step along U S^p V^T, nearly, of the momentum's singular value decomposition.

    For asking whether something between momentum and Muon, or beyond Muon, suits a model; the authors go from p = 0.25
    to -0.25 early in training. For p = 0 take ``muon``, whose step does not follow the scale of the gradient.

    p = 0 is Muon; above, strong directions go further than weak ones, below it is the other way about. With g the
    gradient of a matrix of r rows and c columns, transposed where r > c,

        b <- momentum b + g,    u = g + momentum b
        n = |u| + ns_eps,    X = u / n,    E = X X^T - 1,    d = p / 2
        O = (1 + d E + d (d - 1) / 2 E^2) NS(X) n^p
        w <- w (1 - lr weight_decay) - lr sqrt(max(1, r / c)) O

    The series is of second order around 1: small singular values are moved by 1 - d + d (d - 1) / 2, not by their
    power. n^p follows the scale of the gradient. A kernel (out, in, ...) is the matrix (out, rest); a tensor of three
    axes is a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        p: the power; a schedule may change it in the groups between steps.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    DynMuon (2026), arXiv 2605.17109.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.025,
        p: float = 0.0,
        ns_steps: int = 12,
        ns_coefficients: Coefficients = CONVERGING,
        ns_eps: float = 1e-7,
        ns_dtype: str | None = "bfloat16",
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
        check.number(self, "p", group["p"], -1.0, 1.0)

    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, and return the directions."""
        us = self.summed(params, grads, states, group)
        return self.directions(us, lambda x: self.direction(x, group), group)

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """Orthogonalize matrices, then give their singular values a power."""
        o, d = self.polar(x, group), group["p"] / 2
        if not d:
            return o
        size = (x.norm(dim=(-2, -1), keepdim=True) + group["ns_eps"]).clamp(min=torch.finfo(x.dtype).tiny)
        tall = x.shape[-2] > x.shape[-1]
        x, o = (x.mT, o.mT) if tall else (x, o)
        e = (x / size) @ (x / size).mT
        e.diagonal(dim1=-2, dim2=-1).sub_(1)
        o = (o + d * (e @ o) + d * (d - 1) / 2 * (e @ (e @ o))) * size ** group["p"]
        return o.mT if tall else o
