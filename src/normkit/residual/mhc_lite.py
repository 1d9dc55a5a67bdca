"""mHC-lite: hyper-connections whose mixing matrix is a mean of permutations, weighted by a softmax."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.streams import Connected, Several, favour, parts
from normkit.residual.wiring import At, NormMaker, Wiring
from normkit.statistics import accurate

MOST = 6  # 720 permutations


class Weights(nn.Module):
    """What a sublayer reads of each stream, how the streams mix, and what it writes to each."""

    def __init__(self, place: At, number: int, make: NormMaker):
        super().__init__()
        n = self.streams = check.size("mhc-lite", "streams", place.options["streams"], most=MOST)
        self.sizes = [n, n, math.factorial(n)]
        self.norm = catalog.create("rmsnorm", n * place.dim, eps=1e-12, eps_floor=True)
        self.weight = nn.Parameter(torch.zeros(sum(self.sizes), n * place.dim))
        near = favour(number, n, 1.0, -1.0)
        self.bias = nn.Parameter(torch.cat([near, near, favour(0, self.sizes[2], 0.0, -8.0)]))
        self.scale = nn.Parameter(torch.full((3,), 0.01))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of reading (..., n), mixing (..., n, n) and writing (..., n)."""
        z = self.norm(accurate(x.flatten(-2)))
        a = z @ self.weight.to(z.dtype).mT
        read, write, mix = parts(a, self.sizes, self.scale, self.bias)
        mixed = torch.softmax(mix, -1) @ self._permutations(mix)
        return torch.sigmoid(read), mixed.unflatten(-1, (self.streams, self.streams)), 2 * torch.sigmoid(write)

    def _permutations(self, like: Tensor) -> Tensor:
        """All permutation matrices, each a row (n n,), a 1 in row i and column p(i), p in lexicographic order."""
        order = torch.tensor(list(itertools.permutations(range(self.streams))), device=like.device)
        return torch.eye(self.streams, dtype=like.dtype, device=like.device)[order].flatten(1)


@method(
    "mhc-lite",
    paper="mHC-lite: You Don't Need 20 Sinkhorn-Knopp Iterations (Yang and Gao, 2026), arXiv 2601.05732",
    shape="... streams C",
    over="streams C",
    example={**SUBLAYERS, "streams": 3},
    exempt={
        "extremes huge float16": "a sum of streams of 6e4 overflows",
        "extremes offset float16": "rounded streams are constant; the slopes of two norms at them, 316 each, overflow",
    },
)
class MHCLite(Block):
    """Widen the residual stream to several that mix by exactly doubly stochastic matrices: means of permutations.

    For what [mhc](mhc.md) is for, without its iterations: every doubly stochastic matrix is a mean of permutations,
    and a softmax weighs them. Per token, H the streams (n, dim), z = sqrt(n dim) flat(H) / max(|flat(H)|, 1e-12) *
    norm.weight, and a = weight z cut into a_read, a_write (n,) and a_mix (n!,):

        read = sigmoid(scale_0 a_read + bias),    write = 2 sigmoid(scale_1 a_write + bias)
        c = softmax(scale_2 a_mix + bias),        M = sum_p c[p] Perm_p
        u = sum_s read[s] H[s],    H[t] <- sum_s M[s, t] H[s] + write[t] F(attention_norm(u))

    first for A, then for F with a connection of its own. Perm_p has a 1 in row i and column p(i), the permutations in
    lexicographic order, the identity first. A model begins with copies of its embedding, and ends with the final norm
    of each stream, and their sum.

    Args:
        dim: features of each stream.
        layer: the block's place in the model, from 0; sublayer 2 layer (A), 2 layer + 1 (F) at first favours the
            stream of its number modulo ``streams``.
        depth: how many layers the model has; not used.
        norm: a norm of the catalogue by name, or a function of the width: of the sublayers' inputs.
        streams: how many streams there are, n, 6 at most, since there are n! weights.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(x)``: (..., streams, dim) to the same. State, of each sublayer, in ``attention_connection``:
    ``norm.weight`` (n dim,), ones; ``weight`` (2 n + n!, n dim), zeros; ``bias`` (2 n + n!,): read and write -1, but +1
    at the favoured stream, mix -8, but 0 at the identity; ``scale`` (3,), 0.01; ``attention_norm``.

    mHC-lite: You Don't Need 20 Sinkhorn-Knopp Iterations (2026), arXiv 2601.05732.

    Differs from the authors' code in: the stream that is favoured at first follows the sublayer's number; there it is
    drawn.
    """

    wiring = Wiring(Connected(Weights), form=Several(norm_each=True), options={"streams": 4})
