"""DeepNorm: post-norm with an enlarged stream."""

from __future__ import annotations

import torch
from torch import nn

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Branch, Matrices, Wiring

Constants = tuple[float, float]


def deepnorm_constants(encoder_layers: int = 0, decoder_layers: int = 0) -> tuple[Constants | None, Constants | None]:
    """Return (alpha, beta) of the encoder and of the decoder; None for a stack without layers.

    ``encoder_layers`` and ``decoder_layers`` count the layers of each stack; 0 where there is none.

    alpha weights the stream; beta is the gain of the Xavier-normal start of value, output and feedforward matrices
    (query and key: 1). The encoder of an encoder-decoder has the paper's rounded 0.87, where the code has 1 / 1.15.

    >>> [round(constant, 3) for constant in deepnorm_constants(decoder_layers=100)[1]]
    [3.761, 0.188]
    """
    n, m = (
        check.size("deepnorm_constants", name, value, least=0)
        for name, value in (("encoder_layers", encoder_layers), ("decoder_layers", decoder_layers))
    )
    if n and m:
        joined = (n**4 * m) ** (1 / 16)
        return (0.81 * joined, 0.87 / joined), _of_branches(3 * m)
    return _of_branches(2 * n) if n else None, _of_branches(2 * m) if m else None


def _of_branches(number: int) -> Constants:
    return number**0.25, (4 * number) ** -0.25


def constants(at: At) -> Constants:
    """Return (alpha, beta) of the stack that a layer stands in."""
    read = deepnorm_constants(at.depth, at.other_depth)[0] if at.is_read else None
    return read or _of_branches(at.stack)


def _alpha(at: At) -> float:
    alpha = at.options["alpha"]
    return constants(at)[0] if alpha is None else check.number("deepnorm", "alpha", alpha)


@torch.no_grad()
def _init(matrices: Matrices, at: At) -> None:
    _, beta = constants(at)
    for name, matrix in matrices.items():
        spared = any(part.startswith(("query", "key")) for part in name.split("."))
        nn.init.xavier_normal_(matrix, 1.0 if spared else beta)


@method(
    "deepnorm",
    paper="DeepNet: Scaling Transformers to 1,000 Layers (Wang et al., 2022), arXiv 2203.00555",
    evidence="equations",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "depth": 4},
    exempt={"extremes huge float16": "a sum of 6e4 with its sublayer overflows before it is normalized"},
)
class DeepNorm(Block):
    """Normalize the stream after each sublayer, the stream weighted up by a constant that grows with depth.

    For transformers of hundreds of layers: the update of the whole model stays bounded by a constant, provided that the
    matrices of value, output and feedforward start small; see :func:`deepnorm_constants`. The transformer layer of this
    placement does so. At usual depths ``pre-norm`` needs no such constants.

        x <- attention_norm(alpha x + A(x))
        x <- feedforward_norm(alpha x + F(x))

    Args:
        dim: features of the stream.
        layer: the block's place in the model; not used.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width.
        alpha: the stream's weight; None is (2 depth)^(1/4), that of a single stack.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    DeepNet: Scaling Transformers to 1,000 Layers (Wang et al., 2022), arXiv 2203.00555.
    """

    wiring = Wiring(
        Branch(norm="sum", residual=_alpha),
        options={"alpha": None},
        needs=("depth",),
        init=_init,
        final_norm=False,
    )
