"""SOAP: Adam in the basis of Shampoo's statistics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._bases import KEPT, adam_direction, eigenbasis, power_step
from normkit.gradient._matrices import cut_as
from normkit.gradient._optimizer import Groups, Optimizer, keep, settings
from normkit.gradient._sharded import whole
from normkit.gradient.grams import corrected_rate
from normkit.statistics import accurate

LEAST = 1e-30  # added to the size of a step that is divided by it


@method(
    "soap",
    paper="SOAP: Improving and Stabilizing Shampoo using Adam (Vyas et al., 2024), arXiv 2409.11321",
    shape="...",
    replaces=("adamw",),
    exempt=dict.fromkeys(("kept-type float32", "device"), "statistics of less than full rank have no definite basis"),
)
class SOAP(Optimizer):
    """Take Adam's step in slowly turning coordinates, in which the entries of a gradient depend on each other less.

    For pretraining where steps are costly and memory is not: in the paper fewer steps than AdamW and Shampoo. Each axis
    of a matrix needs a statistic and a basis. Where they do not fit, take ``muon``, or ``adafactor``.

    Along each axis i of a gradient g, with G_i the products of its slices, (n, n), and t the calls after the first,

        h = g, each axis turned by its basis Q_i
        m <- b1 m + (1 - b1) h,    v <- b2 v + (1 - b2) h^2
        u = m / (sqrt(v) + eps), turned back
        w <- w - lr sqrt(1 - b2^t) / (1 - b1^t) u,    then w <- w (1 - lr weight_decay)
        GG_i <- sb GG_i + (1 - sb) G_i

    and at every ``precondition_frequency``-th t, Q_i is ordered by the diagonal of Q_i^T GG_i Q_i, the largest first,
    v with it, and becomes the orthogonal factor of GG_i Q_i; m is turned along. The first call moves nothing: its
    gradient begins the statistics, whose eigenvectors are the first basis.

    Axes longer than ``max_precond_dim`` and vectors keep their own coordinates, which is Adam. A kernel or a stack of
    matrices has a basis for each of its axes.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: shares of the old value in the moments.
        shampoo_beta: sb, the share of the old value in the statistics; below 0: that of the second moment.
        eps: added to the root of the second moment, which is not corrected for its start.
        weight_decay: the share of a weight that is taken off after a step, times the learning rate.
        precondition_frequency: steps from one basis to the next.
        max_precond_dim: the length of the longest axis that has a basis.
        precondition_1d: give vectors a basis as well.
        normalize_grads: divide each step by its root mean square.
        correct_bias: correct the moments for their start at 0, in the rate.
        maximize: go up instead of down.
        foreach: as in all optimizers; each parameter is worked on alone.

    State of a parameter: ``step``, ``exp_avg`` and ``exp_avg_sq``, in its bases; of each axis with one, ``GG0`` and
    ``Q0``, ``GG1`` and ``Q1``, and so on.

    Of distributed tensors each process keeps its part of the moments, and all bases.

    SOAP (Vyas et al., 2024), arXiv 2409.11321. Differs from the authors' code in: bases are worked out in the type of
    the parameter, in float32 at least; there always in float32. Their ``merge_dims`` is not taken over.
    """

    exact = KEPT
    squares = 1.0

    def __init__(
        self,
        params: Groups,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        shampoo_beta: float = -1.0,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        precondition_frequency: int = 10,
        max_precond_dim: int = 10000,
        precondition_1d: bool = False,
        normalize_grads: bool = False,
        correct_bias: bool = True,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.number(self, "shampoo_beta", group["shampoo_beta"], high=1.0)
        check.size(self, "precondition_frequency", group["precondition_frequency"])
        check.size(self, "max_precond_dim", group["max_precond_dim"], least=0)

    @torch._disable_dynamo
    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        for w, g, state in zip(params, grads, states, strict=True):
            full = accurate(whole(g))
            if "step" in state:
                self.move(w, full, state, group)
            else:
                keep([w], [state], "step", "exp_avg", "exp_avg_sq")
            self.learn(w, full, state, group)

    def move(self, w: Tensor, g: Tensor, state: dict, group: dict) -> None:
        """Move a parameter, whose bases are known."""
        state["step"] += 1
        direction = adam_direction(w, in_bases(g, state), state, group)
        u = in_bases(accurate(whole(direction)), state, back=True)
        if group["normalize_grads"]:
            u = u / (LEAST + u.square().mean().sqrt())
        w.add_(cut_as(u, w), alpha=-corrected_rate(group, state["step"].item()))
        if group["weight_decay"]:
            w.mul_(1 - group["lr"] * group["weight_decay"])

    def learn(self, w: Tensor, g: Tensor, state: dict, group: dict) -> None:
        """Move the statistics, and the bases whose time has come."""
        share = group["betas"][1] if group["shampoo_beta"] < 0 else group["shampoo_beta"]
        first = not state["step"]
        axes = with_basis(g, group) if first else [axis for axis in range(g.dim()) if f"Q{axis}" in state]
        for axis in axes:
            flat = g.movedim(axis, 0).unsqueeze(-1).flatten(1)
            statistic = state.setdefault(f"GG{axis}", flat.new_zeros(len(flat), len(flat)))
            statistic.lerp_(flat @ flat.mT, 1 - share)
            if first:
                state[f"Q{axis}"] = eigenbasis(statistic)
        if axes and not first and state["step"] % group["precondition_frequency"] == 0:
            self.turn(w, axes, state)

    def turn(self, w: Tensor, axes: Sequence[int], state: dict) -> None:
        """Order the directions of the bases and bring them up to date, and the moments with them."""
        first = in_bases(accurate(whole(state["exp_avg"])), state, back=True)
        second = whole(state["exp_avg_sq"])
        for axis in axes:
            statistic, basis = state[f"GG{axis}"], state[f"Q{axis}"]
            order = (basis * (statistic @ basis)).sum(0).argsort(descending=True)
            second = second.index_select(axis, order)
            state[f"Q{axis}"] = power_step(statistic, basis[:, order])
        state["exp_avg"].copy_(cut_as(in_bases(first, state), w))
        state["exp_avg_sq"].copy_(cut_as(second, w))


def with_basis(g: Tensor, group: dict) -> list[int]:
    """The axes of a gradient that get a basis."""
    if g.dim() < 2 and not group["precondition_1d"]:
        return []
    return [axis for axis, size in enumerate(g.shape) if size <= group["max_precond_dim"]]


def in_bases(x: Tensor, state: dict, back: bool = False) -> Tensor:
    """Turn each axis of a tensor that has a basis into it, or back."""
    for axis in range(x.dim()):
        basis = state.get(f"Q{axis}")
        if basis is not None:
            x = (x.movedim(axis, -1) @ (basis.mT if back else basis)).movedim(-1, axis)
    return x
