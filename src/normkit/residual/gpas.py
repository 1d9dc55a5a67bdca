"""GPAS: the stream is scaled down after every sublayer, and its gradient passes as if it were not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.residual.deepnorm import DeepNorm, constants
from normkit.residual.peri_norm import PeriNorm
from normkit.residual.pre_norm import PreNorm
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Branch, NormMaker, Own, Part, Wiring


def scale_down(x: Tensor, gate: Tensor) -> Tensor:
    """Multiply by 1 - silu(gate); the gradient of ``x`` is that of the result."""
    return x - F.silu(gate).to(x.dtype) * x.detach()


@dataclass(frozen=True, repr=False)
class Gated(Branch):
    """A branch whose stream is scaled down: after the sum, or before it where the norm stands after the sum."""

    shares = ("gate",)

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build its norms, and the gate."""
        return {**super().parts(place, make), "gate": nn.Parameter(torch.zeros(()))}

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the stream."""
        if self.norm == "sum":
            return super().write(own, scale_down(kept, own("gate")), y)
        x, pending = super().write(own, kept, y)
        return scale_down(x + pending, own("gate")), None


WIRINGS = {
    "pre-norm": dataclasses.replace(PreNorm.wiring, attention=Gated(norm="input")),
    "peri-norm": dataclasses.replace(PeriNorm.wiring, attention=Gated(norm="input", output_norm=True)),
    "deepnorm": dataclasses.replace(
        DeepNorm.wiring, attention=Gated(norm="sum", residual=lambda at: constants(at)[0]), needs=()
    ),
}


def _wiring_of(at: At) -> Wiring:
    return WIRINGS[check.choice("gpas", "placement", at.options["placement"], tuple(WIRINGS))]


@method(
    "gpas",
    paper="GPAS: Accelerating Convergence of LLM Pretraining via Gradient-Preserving Activation Scaling "
    "(Chen et al., 2025), arXiv 2506.22049",
    shape="... C",
    over="C",
    example=SUBLAYERS,
    exempt={
        "gradcheck": "the gradient of the stream is that of one that is not scaled, by definition",
        "higher-derivatives": "the gradient of the stream is that of one that is not scaled, by definition",
    },
)
class GPAS(Block):
    """Multiply the stream by 1 - silu(gate) after each sublayer, and leave its gradient as it is.

    For deep pre-norm models, whose stream grows with every layer until the late ones hardly change it.
    ``layernorm-scaling`` scales what layers read instead, by fixed numbers.

    G(x) = x - silu(gate) stop(x), where stop passes no gradient:

        x <- G(x + A(attention_norm(x))),    x <- G(x + F(feedforward_norm(x)))      (pre-norm)
        x <- G(x + attention_output_norm(A(attention_norm(x)))), likewise F          (peri-norm)
        x <- attention_norm(alpha G(x) + A(x)), likewise F                           (deepnorm)

    with deepnorm's alpha. The gate starts at 0, where G is the identity; the gradient of x is dy, that of the gate
    -silu'(gate) sum(x dy). A gate below 0 lets the stream grow, by 28% at most.

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model, for deepnorm.
        norm: a norm of the catalogue by name, or a function of the width.
        placement: ``"pre-norm"``, ``"peri-norm"`` or ``"deepnorm"``.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    State: ``gate`` (), which both sublayers share, and the norms. In a transformer the placement is written
    ``"gpas:placement=peri-norm"``.

    GPAS: Accelerating Convergence of LLM Pretraining via Gradient-Preserving Activation Scaling (Chen et al., 2025),
    arXiv 2506.22049.
    """

    wiring = Wiring(
        Gated(norm="input"),
        options={"placement": "pre-norm"},
        defaults={"norm": "rmsnorm", "depth": 1},
        early=lambda at: at.depth,
        early_wiring=_wiring_of,
    )
