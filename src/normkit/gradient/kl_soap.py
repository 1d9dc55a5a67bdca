"""KL-SOAP: SOAP whose two statistics whiten each other, in steps of a fixed angle."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._bases import KEPT, adam_direction, eigenbasis, move_bases, project, project_back
from normkit.gradient._matrices import Hidden, cut_as, full_matrix
from normkit.gradient._optimizer import Groups, below_one, keep, settings
from normkit.gradient.hyperball import turn_by_angle

FLOOR = 1e-30  # of an eigenvalue
MOST = 4000.0  # of one over its root


@method(
    "kl-soap",
    paper="Understanding and Improving Shampoo and SOAP via Kullback-Leibler Minimization (Lin et al., 2025), "
    "arXiv 2509.03378",
    shape="N C",
    replaces=("soap",),
    provenance="KL-SOAP-H of the third track of modded-nanogpt, whose step is Hyperball's",
    exempt=dict.fromkeys(("kept-type float32", "device"), "statistics of less than full rank have no definite basis"),
)
class KLSOAP(Hidden):
    """Adam in bases whose statistics are each divided by the other side's, then a turn of each weight by an angle.

    For matrices of a model that ``soap`` suits, with statistics that do not count the other side's twice. It keeps as
    many bases, and steps by an angle as ``hyperball`` does. Where memory is short take ``muon``.

    A gradient's statistic of rows sees its columns as well; dividing those out is what the Kullback-Leibler distance
    asks for. With g the gradient (r, c), and e, f estimates of the eigenvalues of both sides,

        h = QL^T g QR,    m <- b1 m + (1 - b1) h,    v <- b2 v + (1 - b2) h^2
        u = QL (m / (sqrt(v) + eps)) QR^T
        L <- sb L + (1 - sb) g QR diag(1 / f) QR^T g^T / c,    R <- sb R + (1 - sb) g^T QL diag(1 / e) QL^T g / r
        e <- sb e + (1 - sb) (mean of h^2 / f over columns),   f <- sb f + (1 - sb) (mean of h^2 / e over rows)
        w <- w - lr |w| u / |u|, brought back to the length that it had

    with the e and f of before on the right, floored so that 1 / sqrt(e) is at most 4000. Every
    ``precondition_frequency`` calls QL and QR become the orthogonal factors of L QL and R QR; m is turned along, v is
    not. The first call moves nothing: its gradient begins the statistics, whose eigenvectors are the first bases.

    A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate: about the angle of a step.
        betas: shares of the old value in the moments.
        shampoo_beta: sb, the share of the old value in the statistics.
        eps: added to the root of the second moment; there is no correction for its start.
        precondition_frequency: calls from one pair of bases to the next.
        init_factor: the eigenvalues at the start.
        maximize: go up instead of down.
        foreach: as in all optimizers; each parameter is worked on alone.

    State of a parameter: ``step``, ``exp_avg`` and ``exp_avg_sq`` in the bases; ``GG0``, ``Q0`` and ``eigenvalues0`` of
    its rows, ``GG1``, ``Q1`` and ``eigenvalues1`` of its columns.

    Of distributed tensors each process keeps its part of the moments, and all bases.

    KL-SOAP (2025), arXiv 2509.03378.
    """

    exact = KEPT | {"eigenvalues0", "eigenvalues1"}
    squares = MOST

    def __init__(
        self,
        params: Groups,
        lr: float = 0.018,
        betas: tuple[float, float] = (0.95, 0.9),
        shampoo_beta: float = 0.9,
        eps: float = 1e-8,
        precondition_frequency: int = 1,
        init_factor: float = 0.1,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()))

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        below_one(self, "shampoo_beta", group["shampoo_beta"])
        check.size(self, "precondition_frequency", group["precondition_frequency"])
        check.number(self, "init_factor", group["init_factor"], 0.0)

    @torch._disable_dynamo
    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        for w, g, state in zip(params, grads, states, strict=True):
            if not w.numel():
                continue
            if "step" in state:
                self.move_one(w, full_matrix(g), state, group)
            else:
                self.begin(w, full_matrix(g), state, group)

    def begin(self, w: Tensor, g: Tensor, state: dict, group: dict) -> None:
        """Begin the statistics with a gradient."""
        keep([w], [state], "step", "exp_avg", "exp_avg_sq")
        for side, x in enumerate((g, g.mT)):
            state[f"GG{side}"] = x @ x.mT / x.shape[-1]
            state[f"Q{side}"] = eigenbasis(state[f"GG{side}"])
            state[f"eigenvalues{side}"] = x.new_full(x.shape[:-1], group["init_factor"])

    def move_one(self, w: Tensor, g: Tensor, state: dict, group: dict) -> None:
        """Move a matrix, whose bases are known."""
        state["step"] += 1
        bases = state["Q0"], state["Q1"]
        h = project(g, *bases)
        u = project_back(full_matrix(adam_direction(w, h, state, group)), *bases)
        turn_by_angle(w, cut_as(u, w), group["lr"], stacked=w.dim() == 3)
        self.learn(g, h, state, group["shampoo_beta"])
        if state["step"] % group["precondition_frequency"] == 0:
            m = state["exp_avg"]
            first = project_back(full_matrix(m), *bases)
            move_bases(state)
            m.copy_(cut_as(project(first, state["Q0"], state["Q1"]), w))

    def learn(self, g: Tensor, h: Tensor, state: dict, share: float) -> None:
        """Move the statistics and the eigenvalues, each side's by the other's of before."""
        weights = [state[f"eigenvalues{side}"].clamp(min=FLOOR).rsqrt().clamp(max=MOST) for side in (0, 1)]
        for side, (x, y) in enumerate(((g, h), (g.mT, h.mT))):
            other = weights[1 - side]
            half = x @ state[f"Q{1 - side}"] * other[..., None, :]
            state[f"GG{side}"].lerp_(half @ half.mT / x.shape[-1], 1 - share)
            means = (y * other[..., None, :]).square().mean(-1)
            state[f"eigenvalues{side}"] = weights[side].pow(-2).lerp(means, 1 - share)
