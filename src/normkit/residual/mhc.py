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

    norm_eps, magnitude, write_eps = 1e-6, 2.0, 0.0  # pickles of before they came have none

    def __init__(self, place: At, number: int, make: NormMaker):
        super().__init__()
        n = self.streams = place.options["streams"]
        self.iterations = check.size("mhc", "iterations", place.options["iterations"], least=0)
        self.eps = check.eps("mhc", place.options["eps"])
        self.norm_eps = check.eps("mhc", place.options["norm_eps"], "norm_eps")
        self.magnitude = check.number("mhc", "magnitude", place.options["magnitude"], 0.0, open_low=True)
        self.write_eps = check.eps("mhc", place.options["write_eps"], "write_eps")
        rows = n * (n + 2) if self.iterations else 2 * n
        self.weight = small_normal(rows, n * place.dim)
        self.bias = nn.Parameter(torch.zeros(rows))
        self.scale = nn.Parameter(torch.ones(3 if self.iterations else 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of reading (..., n), mixing (..., n, n) and writing (..., n)."""
        n = self.streams
        sizes = [n, n, n * n] if self.iterations else [n, n]
        read, write, *mix = parts(scores(x, self.weight, self.norm_eps), sizes, self.scale, self.bias)
        if mix:
            mixed = ops.sinkhorn(mix[0].unflatten(-1, (n, n)), self.iterations, self.eps)
        else:
            mixed = torch.eye(n, dtype=read.dtype, device=read.device).expand(*read.shape, n)
        return torch.sigmoid(read) + self.eps, mixed, self.magnitude * torch.sigmoid(write) + self.write_eps


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
    """Widen the residual stream to several that mix by doubly stochastic matrices, as are their products over depth.

    For large models: hyper-connections without their growth, since a mixing whose rows and columns sum to 1 neither
    amplifies nor loses what the streams hold. ``mhc-lite`` does without its iterations.

    Per token, H the streams (n, dim), z = flat(H) / sqrt(mean(flat(H)²) + norm_eps), and a = weight z cut into a_read,
    a_write (n,) and a_mix (n, n):

        read  = sigmoid(scale_0 a_read + bias) + eps,    write = magnitude sigmoid(scale_1 a_write + bias) + write_eps
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
        iterations: how often columns are normalized; 0: the streams do not mix, M is 1, and there is no a_mix (HY-V4).
        eps: added to what is read, to M at first and in each division; 0 is honoured.
        norm_eps: added to the mean square of the streams; a model's head keeps 1e-6.
        magnitude, write_eps: the most that is written, and what is added to it.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(x)``: (..., streams, dim) to the same. State, of each sublayer, in ``attention_connection``: ``weight``
    (n (n + 2), n dim), normal with deviation 0.02, ``bias`` (n (n + 2),), zeros, both in the order read, write, mix row
    by row, ``scale`` (3,), ones; without mixing (2 n, n dim), (2 n,) and (2,); ``attention_norm``.

    mHC: Manifold-Constrained Hyper-Connections (Xie et al., 2025), arXiv 2512.24880; the form of DeepSeek-V4.

    Differs from the paper in: scale starts at 1, as in transformers, not at 0.01.
    """

    wiring = Wiring(
        Connected(Weights),
        form=Several(head=MHCHead),
        options={"streams": 4, "iterations": 20, "eps": 1e-6, "norm_eps": 1e-6, "magnitude": 2.0, "write_eps": 0.0},
        defaults={"norm": "rmsnorm"},
    )
