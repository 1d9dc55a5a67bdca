"""The minimal transformer: attention with as few matrices as it can do with."""

from __future__ import annotations

from torch import Tensor, nn

from normkit import check
from normkit.attention.core import Mixer
from normkit.attention.softmax import Softmax
from normkit.catalog import method
from normkit.layers import Linear

SIMILARITIES = ("collapsed", "symmetric", "full")


@method(
    "minimal-transformer",
    paper="Reducing the Transformer Architecture to a Minimum (Bermeitinger et al., 2024), arXiv 2410.13732",
    evidence="equations",
    shape="N T C",
    over="T",
    inputs={"mask?": "N 1 1 T : bool"},
    provenance="the paper's equations, whose experiments ran on a Keras layer with biases",
    exempt={
        "extremes huge float16": "the product of a matrix with 6e4 overflows, as any linear map's",
        "offsets gradients": "scores are products of raw values: the softmax is saturated, and its gradient cancels",
    },
)
class MinimalTransformer(Mixer):
    """Replace every token by an average of all, weighted by a softmax; no feedforward part, few matrices.

    For small models with few parameters to spend, and for asking which parts of a layer a task needs. On MNIST the
    paper's symmetric form matches the full encoder with a quarter of its parameters. With several heads collapsing
    saves nothing: take ``softmax`` with its usual maps.

    With W_q alone by default, and h heads of dim / h features,

        q = x W_qᵀ,    k = x  or  q  or  x W_kᵀ,    v = x  or  x W_vᵀ
        o = softmax(q kᵀ / sqrt(dim / h)) v,    y = o  or  o W_oᵀ

    There is no residual, norm or bias inside. Without value matrices each output is a convex combination of the inputs,
    so stacked layers contract towards one point unless there is a residual around them.

    Args:
        dim: features of a token.
        heads: number of heads; more than one needs ``value=True`` and a similarity other than ``"collapsed"``.
        similarity: ``"collapsed"``, one matrix for W_qᵀ W_k, so k = x; ``"symmetric"``, k = q; ``"full"``, a matrix
            each.
        value: keep the value and the output matrix.
        causal: token i sees tokens j <= i.

    ``module(x, mask=None)``: x (N, T, dim) and the result alike. The mask is True where a token may see another, and
    broadcasts to (N, heads, T, T); (N, 1, 1, T) hides padding.

    Reducing the Transformer Architecture to a Minimum (Bermeitinger et al., 2024), arXiv 2410.13732.

    Differs from the paper in: its experiments ran on a Keras layer, with the biases that the equations have not.
    """

    def __init__(
        self, dim: int, *, heads: int = 1, similarity: str = "collapsed", value: bool = False, causal: bool = False
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.heads = check.size(self, "heads", heads)
        check.divides(self, "heads", self.heads, "dim", dim)
        self.similarity = check.choice(self, "similarity", similarity, SIMILARITIES)
        if heads > 1 and (similarity == "collapsed" or not value):
            why = "similarity='collapsed'" if similarity == "collapsed" else "value=False"
            raise ValueError(
                f"MinimalTransformer: heads must be 1 with {why}, which has nothing to cut into heads, not {heads}"
            )
        self.query = Linear(dim, dim, bias=False)
        self.key = Linear(dim, dim, bias=False) if similarity == "full" else None
        self.value = Linear(dim, dim, bias=False) if value else None
        self.output = Linear(dim, dim, bias=False) if value else None
        self.core = Softmax(dim // heads, heads=heads, causal=causal)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the tokens of ``x``."""
        check.values(self, "x", x, (None, None, self.dim), like=x)
        q, v = _map(self.query, x), _map(self.value, x)
        k = q if self.similarity == "symmetric" else _map(self.key, x)
        q, k, v = (z.unflatten(-1, (self.heads, -1)).transpose(1, 2) for z in (q, k, v))
        o = self.core(q, k, v, mask).transpose(1, 2).flatten(2)
        return _map(self.output, o).to(x.dtype)


def _map(linear: nn.Module | None, x: Tensor) -> Tensor:
    """A matrix, or without one x itself."""
    return x if linear is None else linear(x)
