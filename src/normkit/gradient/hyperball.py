"""Hyperball: each weight keeps its length, and each step turns it by an angle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._bases import KEPT, eigenbasis, move_bases, project, project_back
from normkit.gradient._matrices import cut_as, full_matrix, matrix_shape
from normkit.gradient._muon import CONVERGING, Coefficients, Kin, factor
from normkit.gradient._optimizer import Groups, below_one, count, keep, move_moments, settings
from normkit.gradient._sharded import place, reduce
from normkit.statistics import accurate

LEAST = 1e-10  # floor of a direction's length, and of a mean of squares


@method(
    "hyperball",
    paper="Fantastic Pretraining Optimizers and Where to Find Them 2.1: Hyperball Optimization (Wen et al., 2025)",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon", "adamw"),
    provenance="its entries in the third track of modded-nanogpt",
)
class Hyperball(Kin):
    """Go along another optimizer's direction by a share of the weight's length, then bring the weight back to it.

    For pretraining at several widths, where a learning rate should mean the same for every matrix and no decay should
    have to be tuned. Weights that begin at zero never move. Where lengths should settle freely first, take ``lawn``.

    Weight decay and a weight's growth only change how far a step turns it; here the learning rate is that angle, about,
    in radians, for all shapes. With u the direction, and |.| the length of a parameter,

        R = |w|,    w <- w - lr R u / max(|u|, 1e-10),    w <- w R / |w|

    ``base`` is the direction's, r and c rows and columns, g the gradient:

        "muon"     NS of Muon's momentum
        "adam"     (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps), for parameters of any shape
        "normuon"  O = NS(...) sqrt(max(1, r / c)), divided by the root of a running mean of its squares, floored at
                   1e-10, one for each row if r >= c, else one for each column
        "soap"     m and v without correction, m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) (QL^T g QR)^2, and
                   QL ((QL^T m QR) / (sqrt(v) + eps)) QR^T; statistics L and R move by b2, from 0, and every
                   ``precondition_frequency`` calls the bases, at first the eigenvectors of g g^T and g^T g, become the
                   orthogonal factors of L QL and R QR

    There is no decay. A weight of zeros has no length, and stays: begin with others. In a stack of matrices each has a
    length of its own, unless the base is ``"adam"``; a kernel (out, in, ...) is the matrix (out, rest).

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate: about the angle of a step.
        base: ``"muon"``, ``"adam"``, ``"normuon"`` or ``"soap"``.
        momentum: of ``"muon"`` and ``"normuon"``: the share of the old direction that is kept.
        nesterov: look ahead along the momentum.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        betas: shares of the old value in the moments of ``"adam"`` and ``"soap"``; None: (0.9, 0.95), and of ``"soap"``
            (0.95, 0.9). A group with a ``base`` of its own names its betas too.
        beta2: of ``"normuon"``: the share of the old value in the mean of squares.
        eps: added to the root of the second moment.
        precondition_frequency: of ``"soap"``: calls from one pair of bases to the next.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: of ``"muon"`` ``momentum_buffer``, of ``"normuon"`` also ``second_momentum_buffer``; else
    ``step``, ``exp_avg``, ``exp_avg_sq``, and of ``"soap"`` ``GG0``, ``GG1``, ``Q0``, ``Q1``.

    Hyperball Optimization (Wen et al., 2025), https://whenwen.github.io/wd_blog/public/hyperball-part-1.html.
    """

    state_names = Kin.state_names | {"second_momentum_buffer", "GG0", "GG1", "Q0", "Q1"}

    exact = KEPT
    squares = 1.0

    def __init__(
        self,
        params: Groups,
        lr: float = 0.018,
        base: str = "muon",
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 12,
        ns_coefficients: Coefficients = CONVERGING,
        ns_eps: float = 1e-7,
        ns_dtype: str | None = "bfloat16",
        betas: tuple[float, float] | None = None,
        beta2: float = 0.95,
        eps: float = 1e-8,
        precondition_frequency: int = 1,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        options = settings(locals())
        if betas is None:
            options["betas"] = (0.95, 0.9) if base == "soap" else (0.9, 0.95)
        super().__init__(**options)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        check.choice(self, "base", group["base"], tuple(DIRECTIONS))
        super().check(group)
        below_one(self, "beta2", group["beta2"])
        check.size(self, "precondition_frequency", group["precondition_frequency"])

    def takes_any_shape(self, group: dict) -> bool:
        """Whether a group may have vectors and numbers: with Adam as the base."""
        return group["base"] == "adam" or super().takes_any_shape(group)

    @torch._disable_dynamo
    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices, or with Adam tensors of any shape."""
        us = DIRECTIONS[group["base"]](self, params, grads, states, group)
        for w, u in zip(params, us, strict=True):
            turn_by_angle(w, u, group["lr"], stacked=w.dim() == 3 and group["base"] != "adam")

    def adam_directions(self, params, grads, states, group) -> list[Tensor]:
        """Move Adam's moments, and return its directions."""
        steps, firsts, seconds = keep(params, states, "step", "exp_avg", "exp_avg_sq")
        numbers = count(steps)
        move_moments(grads, firsts, seconds, group["betas"])
        beta, beta_square = group["betas"]
        below = torch._foreach_div(seconds, [1 - beta_square**t for t in numbers])
        torch._foreach_sqrt_(below)
        torch._foreach_add_(below, group["eps"])
        return list(torch._foreach_div(torch._foreach_div(firsts, [1 - beta**t for t in numbers]), below))

    def normuon_directions(self, params, grads, states, group) -> list[Tensor]:
        """Move the momentum and the means of squares, and return directions with even rows, or columns."""
        directions = []
        for p, o, state in zip(params, self.orthogonal(params, grads, states, group), states, strict=True):
            rows, columns = matrix_shape(p)
            o = full_matrix(o) * factor("original", rows, columns)
            axis = -1 if rows >= columns else -2
            mean = o.square().sum(axis, keepdim=True) / max(1, o.shape[axis])
            second = state.setdefault("second_momentum_buffer", torch.zeros_like(mean, dtype=p.dtype))
            second.lerp_(mean.to(p.dtype), 1 - group["beta2"])
            directions.append(cut_as(o * accurate(second).clamp(min=LEAST).rsqrt(), p))
        return directions

    def soap_directions(self, params, grads, states, group) -> list[Tensor]:
        """Move the moments, the statistics and the bases, and return the directions."""
        return [soap_direction(p, g, state, group) for p, g, state in zip(params, grads, states, strict=True)]


def soap_direction(p: Tensor, g: Tensor, state: dict, group: dict) -> Tensor:
    """SOAP's direction from the first call on, without corrections."""
    beta, beta_square = group["betas"]
    keep([p], [state], "step", "exp_avg", "exp_avg_sq")
    state["step"] += 1
    m, full = state["exp_avg"].lerp_(g, 1 - beta), full_matrix(g)
    for side, x in enumerate((full, full.mT)):
        gram = x @ x.mT
        if f"Q{side}" not in state:
            state[f"GG{side}"], state[f"Q{side}"] = torch.zeros_like(gram), eigenbasis(gram)
        state[f"GG{side}"].lerp_(gram, 1 - beta_square)
    bases = state["Q0"], state["Q1"]
    h = cut_as(project(full, *bases), p)
    v = state["exp_avg_sq"].mul_(beta_square).addcmul_(h, h, value=1 - beta_square)
    u = project_back(project(full_matrix(m), *bases) / full_matrix(v.sqrt().add_(group["eps"])), *bases)
    if state["step"] % group["precondition_frequency"] == 0:
        move_bases(state)
    return cut_as(u, p)


def turn_by_angle(w: Tensor, u: Tensor, angle: float, stacked: bool) -> None:
    """Go against a direction by a share of a weight's length, and give the weight that length back.

    In a stack of matrices each has its own length.
    """
    axes = (-2, -1) if stacked else tuple(range(w.dim()))
    before = accurate(w)
    size = length(before, axes)
    moved = before - u * (angle * size / length(accurate(u), axes).clamp(min=LEAST))
    now = length(moved, axes)
    w.copy_(place(moved * torch.where(now > 0, size / now, 1), w))


def length(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The length of a tensor over some axes, which stay."""
    return reduce(torch.linalg.vector_norm(x, dim=axes, keepdim=True)) if axes else x.abs()


Directions = Callable[[Hyperball, list[Tensor], list[Tensor], list[dict], dict], list[Tensor]]
DIRECTIONS: dict[str, Directions] = {
    "muon": Hyperball.orthogonal,
    "adam": Hyperball.adam_directions,
    "normuon": Hyperball.normuon_directions,
    "soap": Hyperball.soap_directions,
}
