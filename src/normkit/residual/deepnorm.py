"""DeepNorm: post-norm with an enlarged stream."""

from __future__ import annotations

from normkit import check
from normkit.catalog import method
from normkit.residual._stream import SUBLAYERS, Block, NormName, Sublayer

Constants = tuple[float, float]


def deepnorm_constants(encoder_layers: int = 0, decoder_layers: int = 0) -> tuple[Constants | None, Constants | None]:
    """Return (alpha, beta) of the encoder and of the decoder; None for a stack without layers.

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
        return (0.81 * joined, 0.87 / joined), ((3 * m) ** 0.25, (12 * m) ** -0.25)
    return _one_stack(n), _one_stack(m)


def _one_stack(layers: int) -> Constants | None:
    return ((2 * layers) ** 0.25, (8 * layers) ** -0.25) if layers else None


@method(
    "deepnorm",
    paper="DeepNet: Scaling Transformers to 1,000 Layers (Wang et al., 2022), arXiv 2203.00555",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "depth": 4},
    exempt={"extremes huge float16": "a sum of 6e4 with its sublayer overflows before it is normalized"},
)
class DeepNorm(Block):
    """Normalize the stream after each sublayer, the stream weighted up by a constant that grows with depth.

    For transformers of hundreds of layers: the update of the whole model stays bounded by a constant, provided that
    the matrices of value, output and feedforward start small; see :func:`deepnorm_constants`. The transformer layer
    of this placement does so.

        x <- attention_norm(alpha x + A(x))
        x <- feedforward_norm(alpha x + F(x))

    Args:
        dim: features of the stream.
        layer: where the block stands in the model; not used.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width.
        alpha: the stream's weight; None is (2 depth)^(1/4), that of a single stack.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    DeepNet: Scaling Transformers to 1,000 Layers (Wang et al., 2022), arXiv 2203.00555.
    """

    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int,
        norm: NormName = "layernorm",
        alpha: float | None = None,
        attention: Sublayer,
        feedforward: Sublayer,
    ):
        super().__init__("deepnorm", dim, layer, depth, norm, attention, feedforward, alpha=alpha)
