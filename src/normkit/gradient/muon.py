"""Muon: momentum whose directions are all made equally large."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from normkit.catalog import method
from normkit.gradient._muon import Momentum, step, wideness
from normkit.gradient._optimizer import Groups


@method(
    "muon",
    paper="Muon: An optimizer for hidden layers in neural networks (Jordan et al., 2024), kellerjordan.github.io",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("adamw",),
    exempt={"no-gradient": "in the authors' code momentum goes on where there is no gradient"},
)
class Muon(Momentum):
    """Bring the singular values of the momentum of each matrix near 1, then step.

    For the matrices inside a network: a gradient has a few strong directions, and this gives the weak ones as much.
    With g the gradient of a matrix of r rows and c columns, and NS five rounds of a polynomial that brings singular
    values into about 0.7 to 1.2,

        b <- momentum b + (1 - momentum) g
        u = (1 - momentum) g + momentum b with nesterov, else b
        w <- w (1 - lr weight_decay) - lr sqrt(max(1, r / c)) NS(u)

    A kernel (out, in, h, w) is the matrix (out, in h w), but r and c are its last two axes, as in the authors' code; a
    tensor of three axes is a stack of matrices. A parameter without a gradient is moved as by one of zero.

    Embeddings, heads, gains and biases are not for it: groups of them say ``use_muon=False`` and get Adam, there with
    lr 3e-4 and no decay by default. :func:`normkit.param_groups` makes such groups.

    Args:
        params: matrices, or groups of parameters.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum.
        ns_steps: rounds of the polynomial.
        ns_coefficients: of its odd powers 1, 3 and 5.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        betas: of Adam's groups.
        eps: of Adam's groups.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Distributed tensors need no argument: their matrices are shared out over their mesh.

    Muon (Jordan et al., 2024), https://kellerjordan.github.io/posts/muon.
    """

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        ns_dtype: str | None = "bfloat16",
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-10,
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            nesterov=nesterov,
            ns_steps=ns_steps,
            ns_coefficients=ns_coefficients,
            ns_dtype=ns_dtype,
            betas=betas,
            eps=eps,
            sync=sync,
            process_group=process_group,
            maximize=maximize,
            foreach=foreach,
        )

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        found = self.orthogonal(params, grads, states, group)
        step(params, found, [group["lr"] * wideness(p) for p in params], group)
