"""The TarFlow block: a causal transformer that scales and shifts each token by those before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog, check
from normkit.catalog import method
from normkit.density._inputs import linear
from normkit.kinds import Transform
from normkit.statistics import reals


class _Attention(nn.Module):
    """Causal attention behind a norm; with a cache, of one more token to those in it."""

    def __init__(self, channels: int, head_dim: int):
        super().__init__()
        self.norm = catalog.create("layernorm", channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.heads, self.head_dim = channels // head_dim, head_dim

    def forward(self, x: Tensor, temperature: float, before: tuple[Tensor, Tensor] | None):
        n, tokens, channels = x.shape
        read = linear(self.norm(x), self.qkv).reshape(n, tokens, 3 * self.heads, self.head_dim)
        q, k, v = read.transpose(1, 2).chunk(3, 1)
        if before is not None:
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        score = q @ k.mT * (self.head_dim**-0.5 / temperature)
        if tokens > 1:
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            score = score.masked_fill(later, -torch.inf)
        output = (torch.softmax(score, -1) @ v).transpose(1, 2).reshape(n, tokens, channels)
        return linear(output, self.proj), (k, v)


class _MLP(nn.Module):
    """Two feed-forward layers behind a norm."""

    def __init__(self, channels: int, expansion: int):
        super().__init__()
        self.norm = catalog.create("layernorm", channels)
        wide = channels * expansion
        self.main = nn.Sequential(nn.Linear(channels, wide), nn.GELU(), nn.Linear(wide, channels))

    def forward(self, x: Tensor) -> Tensor:
        first, _, last = self.main
        return linear(F.gelu(linear(self.norm(x), first)), last)  # type: ignore[arg-type]


class _Block(nn.Module):
    """Attention and feed-forward layers, each added to the stream."""

    def __init__(self, channels: int, head_dim: int, expansion: int):
        super().__init__()
        self.attention, self.mlp = _Attention(channels, head_dim), _MLP(channels, expansion)

    def forward(self, x: Tensor, temperature: float = 1.0, before: tuple[Tensor, Tensor] | None = None):
        output, cache = self.attention(x, temperature, before)
        x = x + output
        return x + self.mlp(x), cache


@method(
    "tarflow-block",
    paper="Normalizing Flows are Capable Generative Models (Zhai et al., 2024), arXiv 2412.06329",
    shape="N num_patches C",
    inputs={"y?": "N : index num_classes"},
    example={"channels": 8, "num_patches": 4, "head_dim": 4, "num_classes": 3},
    exempt={
        "log-det": "the authors' log_det is the mean over tokens and channels, not the sum",
        "scales far": "the scale is the exponential of a stream that grows with the tokens, and overflows",
        "extremes huge": "the scale is the exponential of a stream that grows with the tokens, and overflows",
    },
)
class TarFlowBlock(Transform):
    """Scale and shift each token by a causal transformer of the tokens before it.

    For densities of images whose samples may be drawn token by token; training and likelihood take one pass. Where
    samples should take one pass too, take ``jet-coupling``.

    A flow of images of these alone, with the order of the tokens flipped between blocks, is the best of its kind. The
    images come as patches; with [a | b] what the transformer makes of the tokens before, 0 for the first,

        z = (x - b) exp(-a),    log_det = -mean a

    over tokens and channels: times T C it is the log-determinant. The loss is mean(z^2) / 2 - mean(log_det).

    Args:
        in_channels: C, numbers in a token.
        channels: the width of the transformer.
        num_patches: T.
        num_layers, head_dim, expansion: of the transformer.
        nvp: whether to scale; else a = 0.
        num_classes: of labels; 0: none.
        permutation: ``"identity"`` or ``"flip"``.

    ``forward(x, y)``, tokens (N, T, C) and labels int64 (N,), of which negative ones are dropped, as all are without y:
    those have the mean of the classes' embeddings. Returns ``z`` and ``log_det`` (N,). ``inverse(z, y)`` returns x,
    token by token with a cache. It takes ``guidance`` away from what it would do without labels, in ``guide_what`` "a",
    "b" or "ab", at the temperature ``attn_temp`` of those. Guidance grows along the tokens if ``annealed_guidance``.

    Normalizing Flows are Capable Generative Models (Zhai et al., 2024), arXiv 2412.06329.

    Differs from the authors' code in: a negative label is dropped in the inverse too, where theirs wraps round.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        num_patches: int,
        num_layers: int = 1,
        head_dim: int = 64,
        expansion: int = 4,
        nvp: bool = True,
        num_classes: int = 0,
        permutation: str = "identity",
    ):
        super().__init__()
        self.in_channels = check.size(self, "in_channels", in_channels)
        channels, head_dim = check.size(self, "channels", channels), check.size(self, "head_dim", head_dim)
        check.divides(self, "head_dim", head_dim, "channels", channels)
        self.num_patches = check.size(self, "num_patches", num_patches)
        self.nvp, self.num_classes = nvp, check.size(self, "num_classes", num_classes, least=0)
        self.flipped = check.choice(self, "permutation", permutation, ("identity", "flip")) == "flip"
        expansion = check.size(self, "expansion", expansion)
        self.proj_in = nn.Linear(in_channels, channels)
        self.pos_embed = nn.Parameter(0.01 * torch.randn(num_patches, channels))
        self.class_embed = nn.Parameter(0.01 * torch.randn(num_classes, 1, channels)) if num_classes else None
        self.attn_blocks = nn.ModuleList(
            _Block(channels, head_dim, expansion) for _ in range(check.size(self, "num_layers", num_layers))
        )
        self.proj_out = nn.Linear(channels, 2 * in_channels if nvp else in_channels)
        nn.init.zeros_(self.proj_out.weight)

    def forward(self, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the image of tokens (N, T, C), and the mean log-determinant of each sample."""
        wide = self._turned(reals(self, "x", x, (None, self.num_patches, self.in_channels)))
        h = linear(wide, self.proj_in) + self._turned(self.pos_embed.to(wide.dtype), 0)
        h = h + self._class(y, wide)
        for block in self.attn_blocks:
            h, _ = block(h)
        a, b = self._parts(F.pad(linear(h, self.proj_out)[:, :-1], (0, 0, 1, 0)))
        z = self._turned((wide - b) * (-a).exp())
        return z.to(x.dtype), -a.mean((1, 2)).to(x.dtype)

    def inverse(
        self,
        z: Tensor,
        y: Tensor | None = None,
        guidance: float = 0.0,
        guide_what: str = "ab",
        attn_temp: float = 1.0,
        annealed_guidance: bool = False,
    ) -> Tensor:
        """Return what tokens (N, T, C) are the image of, guided away from what has no label."""
        wide = self._turned(reals(self, "z", z, (None, self.num_patches, self.in_channels)))
        check.number(self, "guidance", guidance)
        check.choice(self, "guide_what", guide_what, ("a", "b", "ab", "ba", ""))
        check.number(self, "attn_temp", attn_temp, 0.0, open_low=True)
        label, place = self._class(y, wide), self._turned(self.pos_embed.to(wide.dtype), 0)
        free = self._class(None, wide)
        caches: list[list] = [[None] * len(self.attn_blocks) for _ in range(2)]
        tokens = [wide[:, :1]]
        for token in range(1, self.num_patches):
            h = linear(tokens[-1], self.proj_in) + place[token - 1]
            a, b = self._next(h + label, 1.0, caches[0])
            weight = guidance * token / (self.num_patches - 1) if annealed_guidance else guidance
            if guidance:
                plain_a, plain_b = self._next(h + free, attn_temp, caches[1])
                a = a + weight * (a - plain_a) if "a" in guide_what else a
                b = b + weight * (b - plain_b) if "b" in guide_what else b
            tokens.append(wide[:, token : token + 1] * a.exp() + b)
        return self._turned(torch.cat(tokens, 1)).to(z.dtype)

    def _next(self, h: Tensor, temperature: float, cache: list) -> tuple[Tensor, ...]:
        """What one token, with those before it in the cache, makes of the next; the cache gets it too."""
        for place, block in enumerate(self.attn_blocks):
            h, cache[place] = block(h, temperature, cache[place])
        return self._parts(linear(h, self.proj_out))

    def _turned(self, x: Tensor, axis: int = 1) -> Tensor:
        return x.flip(axis) if self.flipped else x

    def _parts(self, o: Tensor) -> tuple[Tensor, ...]:
        return o.chunk(2, -1) if self.nvp else (torch.zeros_like(o), o)

    def _class(self, y: Tensor | None, x: Tensor) -> Tensor:
        """The embedding of each label, (N, 1, channels) or one for all."""
        if self.class_embed is None:
            if y is not None:
                raise ValueError(f"{type(self).__name__}: y is given, but num_classes=0")
            return x.new_zeros(())
        embedding = self.class_embed.to(x.dtype)
        if y is None:
            return embedding.mean(0)
        check.shape(self, "y", y, x.shape[:1], x)
        known = y.clamp(min=0) if y.dtype is torch.int64 else y
        check.index(self, "y", known, x.shape[:1], self.num_classes, x)
        return torch.where((y < 0).reshape(-1, 1, 1), embedding.mean(0), embedding[known])
