"""Depth-scaled sandwich norm: peri-norm whose output gains start small in deep models."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Branch, Matrices, Wiring


def _start(option: str) -> Callable[[At], float]:
    """The constant of a sublayer over the root of the depth."""
    return lambda at: check.number("depth-scaled-sandwich", option, at.options[option]) / math.sqrt(at.depth)


@torch.no_grad()
def _init(matrices: Matrices, at: At) -> None:
    for matrix in matrices.values():
        nn.init.normal_(matrix, std=(2 * at.dim * at.depth) ** -0.5)


@method(
    "depth-scaled-sandwich",
    paper="Pangu Ultra: Pushing the Limits of Dense Large Language Models on Ascend NPUs (Yin et al., 2025), "
    "arXiv 2504.07866",
    evidence="abstract",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "depth": 4},
    exempt=dict.fromkeys(
        ("extremes zeros float16", "extremes tiny float16"),
        "the slopes of two norms at a zero vector, 1000 each, overflow",
    ),
    provenance="no code was published; the two constants are as cited, not re-read in the paper",
)
class DepthScaledSandwich(Block):
    """Normalize what each sublayer reads and writes; the written share starts at a constant over the root of the depth.

    For very deep transformers (94 layers in the paper) without loss spikes; goes with all weights drawn with standard
    deviation sqrt(1 / (2 dim depth)), which the transformer layer of this placement does. At usual depths ``peri-norm``
    has the same wiring.

        x <- x + attention_output_norm(A(attention_norm(x)))
        x <- x + feedforward_output_norm(F(feedforward_norm(x)))

    Args:
        dim: features of the stream.
        layer: the block's place in the model; not used.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width.
        attention_constant, feedforward_constant: the output norms' gains start at these over sqrt(depth), and are then
            learned freely.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Pangu Ultra: Pushing the Limits of Dense Large Language Models on Ascend NPUs (Yin et al., 2025), arXiv 2504.07866.
    """

    wiring = Wiring(
        Branch(norm="input", output_norm=True, output_start=_start("attention_constant")),
        Branch(norm="input", output_norm=True, output_start=_start("feedforward_constant")),
        options={"attention_constant": 0.283, "feedforward_constant": 0.432},
        defaults={"norm": "rmsnorm"},
        needs=("depth",),
        init=_init,
    )
