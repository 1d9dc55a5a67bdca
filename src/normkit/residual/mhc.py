"""mHC: hyper-connections whose mixing matrix is doubly stochastic, by Sinkhorn's iterations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.residual.mhc_head import MHCHead, scores
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.streams import Connected, Several, parts, small_normal
from normkit.residual.wiring import At, NormMaker, Wiring

STEEP = "the slopes of several norms at streams of zeros, 1000 each, overflow"


class Weights(nn.Module):
    """What a sublayer reads of each stream, how the streams mix, and what it writes to each."""

    norm_eps = 1e-6  # pickles of before it came have none

    def __init__(self, place: At, number: int, make: NormMaker):
        super().__init__()
        n = self.streams = place.options["streams"]
        self.iterations = check.size("mhc", "iterations", place.options["iterations"])
        self.eps = check.eps("mhc", place.options["eps"])
        self.norm_eps = check.eps("mhc", place.options["norm_eps"], "norm_eps")
        self.weight = small_normal(n * (n + 2), n * place.dim)
        self.bias = nn.Parameter(torch.zeros(n * (n + 2)))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of reading (..., n), mixing (..., n, n) and writing (..., n)."""
        n = self.streams
        read, write, mix = parts(scores(x, self.weight, self.norm_eps), [n, n, n * n], self.scale, self.bias)
        mixed = ops.sinkhorn(mix.unflatten(-1, (n, n)), self.iterations, self.eps)
        return torch.sigmoid(read) + self.eps, mixed, 2 * torch.sigmoid(write)


@method(
    "mhc",
    paper="mHC: Manifold-Constrained Hyper-Connections (Xie et al., 2025), arXiv 2512.24880",
    evidence="library",
    shape="... streams C",
    over="streams C",
    aliases=("manifold-constrained-hyper-connections",),
    example={**SUBLAYERS, "streams": 3},
    exempt={
        "extremes zeros float16": STEEP,
        "extremes tiny float16": STEEP,
        "extremes huge float16": "a sum of streams of 6e4 overflows",
    },
)
class MHC(Block):
    """Widen the residual stream to several that mix by doubly stochastic matrices, which a product over depth stays.

    For large models: hyper-connections without their growth, since a mixing whose rows and columns sum to 1 neither
    amplifies nor loses what the streams hold. Per token, H the streams (n, dim), z = flat(H) / sqrt(mean(flat(H)²) +
    norm_eps), and a = weight z cut into a_read, a_write (n,) and a_mix (n, n):

        read  = sigmoid(scale_0 a_read + bias) + eps,    write = 2 sigmoid(scale_1 a_write + bias)
        M = sinkhorn(scale_2 a_mix + bias):  softmax over rows + eps, columns / (sum + eps),
            then iterations - 1 times rows / (sum + eps), columns / (sum + eps)
        u = sum_s read[s] H[s],    H[t] <- sum_s M[s, t] H[s] + write[t] F(attention_norm(u))

    first for A, then for F with a connection of its own. A model begins with copies of its embedding and ends with
    [mhc-head](mhc-head.md), its ``collapse``.

    Args:
        dim: features of each stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width: of the sublayers' inputs.
        streams: how many streams there are, n.
        iterations: how often columns are normalized.
        eps: added to what is read, to M at first and in each division; 0 is honoured.
        norm_eps: added to the mean square of the streams; a model's head keeps 1e-6.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(x)``: (..., streams, dim) to the same. State, of each sublayer, in ``attention_connection``: ``weight``
    (n (n + 2), n dim), normal with deviation 0.02, ``bias`` (n (n + 2),), zeros, both in the order read, write, mix row
    by row, ``scale`` (3,), ones; ``attention_norm``.

    mHC: Manifold-Constrained Hyper-Connections (Xie et al., 2025), arXiv 2512.24880; the form of DeepSeek-V4.

    Differs from the paper in: scale starts at 1, as in transformers, not at 0.01.
    """

    wiring = Wiring(
        Connected(Weights),
        form=Several(head=MHCHead),
        options={"streams": 4, "iterations": 20, "eps": 1e-6, "norm_eps": 1e-6},
        defaults={"norm": "rmsnorm"},
    )
