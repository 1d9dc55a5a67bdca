"""Jet coupling: half of an image's tokens or channels scaled and shifted by a transformer that sees the other half."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog, check
from normkit.catalog import method
from normkit.density._inputs import linear
from normkit.kinds import Transform
from normkit.statistics import reals

FIXED = "a permutation that is chosen once"
KEY = "a softmax does not see what is added to all its scores"


class _Block(nn.Module):
    """A transformer block, normed before attention and before the feed-forward layers."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (catalog.create("layernorm", dim, eps=1e-6) for _ in range(2))
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + linear(self._attend(self.norm1(x)), self.out)
        inner = F.gelu(linear(self.norm2(x), self.fc1), approximate="tanh")
        return x + linear(inner, self.fc2)

    def _attend(self, x: Tensor) -> Tensor:
        n, tokens, dim = x.shape
        width = dim // self.heads
        q, k, v = (
            linear(x, layer).reshape(n, tokens, self.heads, width).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        output = torch.softmax(q @ k.mT * width**-0.5, -1) @ v
        return output.transpose(1, 2).reshape(n, tokens, dim)


@method(
    "jet-coupling",
    paper="Jet: A Modern Transformer-Based Normalizing Flow (Kolesnikov et al., 2024), arXiv 2412.15129",
    evidence="equations",
    shape="N num_tokens C",
    example={"num_tokens": 4, "emb_dim": 8, "num_heads": 2},
    exempt={"moves projection": FIXED, "gradients blocks.0.key.bias": KEY},
)
class JetCoupling(Transform):
    """Scale and shift one half of an image's patches by a plain transformer that sees the other half.

    For densities of images by plain transformers, with likelihood and samples in one pass each. ``tarflow-block`` sees
    all tokens before the one it moves, and so samples token by token. Where parameters are scarce, take ``nanoflow``.

    A flow of images of these alone, with no other trick, has a competitive likelihood. The halves are of the channels,
    permuted at random, or of the tokens of a checkerboard. These have their channels cut in two and laid out as two
    tokens each, so that the network always gets (T, C / 2). With [bias | raw] the network of the first half x1,

        z2 = (x2 + bias) sigmoid(raw) scale_factor,    log_det = sum log(sigmoid(raw) scale_factor)

    Args:
        dim: C, even.
        num_tokens: T; even with kind="spatial".
        kind: ``"channels"`` or ``"spatial"``. A model has two of the former for each of the latter.
        emb_dim, depth, num_heads: of the transformer.
        scale_factor: at 2 the coupling starts as the identity.
        grid: (rows, columns) of the tokens, the columns even; None: the largest even number of columns that divides T
            and is at most that of the rows, else 2.
        inverted: whether the odd squares of the checkerboard come first, and not the even ones.

    ``forward(x)``, (N, T, C), returns ``z`` and ``log_det`` (N,); ``inverse(z)`` returns x. State: ``projection``, the
    permutation matrix, and the network's.

    Jet (Kolesnikov et al., 2024), arXiv 2412.15129.
    """

    projection: Tensor

    def __init__(
        self,
        dim: int,
        *,
        num_tokens: int,
        kind: str = "channels",
        emb_dim: int = 256,
        depth: int = 1,
        num_heads: int = 4,
        scale_factor: float = 2.0,
        grid: tuple[int, int] | None = None,
        inverted: bool = False,
    ):
        super().__init__()
        self.dim, self.num_tokens = check.size(self, "dim", dim), check.size(self, "num_tokens", num_tokens)
        check.divides(self, "halves", 2, "dim", dim)
        self.split = check.choice(self, "kind", kind, ("channels", "spatial"))
        emb_dim, num_heads = check.size(self, "emb_dim", emb_dim), check.size(self, "num_heads", num_heads)
        check.divides(self, "num_heads", num_heads, "emb_dim", emb_dim)
        self.scale_factor = check.number(self, "scale_factor", scale_factor, 0.0, open_low=True)
        order = torch.randperm(dim) if kind == "channels" else self._checkerboard(grid, inverted)
        self.register_buffer("projection", torch.eye(len(order))[order].mT.contiguous())
        self.input = nn.Linear(dim // 2, emb_dim)
        self.position = nn.Parameter(torch.randn(num_tokens, emb_dim) * emb_dim**-0.5)
        self.blocks = nn.ModuleList(_Block(emb_dim, num_heads) for _ in range(check.size(self, "depth", depth)))
        self.norm = catalog.create("layernorm", emb_dim, eps=1e-6)
        self.output = nn.Linear(emb_dim, dim)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of tokens (N, T, C), and the log-determinant of each sample."""
        kept, other = self._halves(reals(self, "x", x, (None, self.num_tokens, self.dim)))
        bias, raw = self._network(kept)
        z = self._whole(kept, (other + bias) * torch.sigmoid(raw) * self.scale_factor)
        return z.to(x.dtype), (F.logsigmoid(raw) + math.log(self.scale_factor)).sum((1, 2)).to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return what tokens (N, T, C) are the image of."""
        kept, other = self._halves(reals(self, "z", z, (None, self.num_tokens, self.dim)))
        bias, raw = self._network(kept)
        return self._whole(kept, other / (torch.sigmoid(raw) * self.scale_factor) - bias).to(z.dtype)

    def _checkerboard(self, grid: tuple[int, int] | None, inverted: bool) -> Tensor:
        """The tokens of one colour, then those of the other."""
        if grid is not None and (not isinstance(grid, list | tuple) or len(grid) != 2):
            raise ValueError(f"{type(self).__name__}: grid must be (rows, columns), not {grid!r}")
        rows, columns = self._squarest() if grid is None else grid
        for side in (rows, columns):
            check.size(self, "grid", side)
        if rows * columns != self.num_tokens or columns % 2:
            raise ValueError(
                f"{type(self).__name__}: grid must have num_tokens={self.num_tokens} squares in an even number of "
                f"columns, not {rows} x {columns}"
            )
        token = torch.arange(self.num_tokens)
        odd = (token + token // columns) % 2 != int(inverted)
        return torch.argsort(odd.long(), stable=True)

    def _squarest(self) -> tuple[int, int]:
        sides = [side for side in range(2, math.isqrt(self.num_tokens) + 1, 2) if self.num_tokens % side == 0]
        columns = max(sides, default=2)
        return max(1, self.num_tokens // columns), columns

    def _halves(self, x: Tensor) -> tuple[Tensor, ...]:
        order = self.projection.to(x.dtype)
        if self.split == "channels":
            return (x @ order).chunk(2, 2)
        shape = len(x), self.num_tokens, self.dim // 2
        return tuple(half.reshape(shape) for half in (order.mT @ x).chunk(2, 1))

    def _whole(self, kept: Tensor, other: Tensor) -> Tensor:
        order = self.projection.to(kept.dtype)
        if self.split == "channels":
            return torch.cat([kept, other], 2) @ order.mT
        shape = len(kept), self.num_tokens // 2, self.dim
        return order @ torch.cat([kept.reshape(shape), other.reshape(shape)], 1)

    def _network(self, x: Tensor) -> tuple[Tensor, ...]:
        inner = linear(x, self.input) + self.position.to(x.dtype)
        for block in self.blocks:
            inner = block(inner)
        return linear(self.norm(inner), self.output).chunk(2, 2)
