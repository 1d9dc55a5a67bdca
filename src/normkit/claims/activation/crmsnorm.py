"""What the paper of Pre-CRMSNorm transformers claims."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims._clock import seconds
from normkit.claims.kinds import Identity, Measured, above
from normkit.claims.measures import gap, randn, randomized, relative


class Block(nn.Module):
    """A block of a Pre-LN transformer."""

    def __init__(self, dim):
        super().__init__()
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.queries, self.keys, self.values = (nn.Linear(dim, dim) for _ in range(3))
        self.mixed, self.up, self.down = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        """Attend, then feed forward."""
        h = self.attention_norm(x)
        x = x + self.mixed(F.scaled_dot_product_attention(self.queries(h), self.keys(h), self.values(h)))
        return x + self.down(F.gelu(self.up(self.feedforward_norm(x))))


def conversion_error(seed, centred=True):
    """How far the outputs of a converted model of four blocks are from those of the model."""
    tokens = torch.randint(11, (3, 7))
    blocks = [Block(12) for _ in range(4)]
    model = randomized(nn.Sequential(nn.Embedding(11, 12), *blocks, nn.LayerNorm(12), nn.Linear(12, 11)), 0.2).eval()
    before = model(tokens)
    if centred:
        model = nk.convert(model, "pre-crmsnorm", tokens).model
    else:
        nk.swap(model, {"layernorm": "rmsnorm"})
    return relative(model(tokens), before)


def training_gap(seed, centred=True):
    """How far the losses of 20 steps of SGD are apart, a layer norm against an RMS norm of a centred stream."""
    start = [randn(9, 8), *(0.3 * randn(*size) for size in 2 * [(16, 8), (8, 16)]), 0.3 * randn(9, 8)]
    tokens = torch.randint(9, (32,))
    plain = losses(start, tokens, lambda x: x, nk.LayerNorm(8, affine=False))
    kept = centre if centred else lambda x: x
    return gap(plain, losses(start, tokens, kept, nk.RMSNorm(8, eps=1e-5, affine=False)))


def losses(start, tokens, kept, norm):
    """The losses of a small pre-norm network, whose stream is written through ``kept``."""
    weights = [weight.clone().requires_grad_() for weight in start]
    table, *inner, head = weights
    history = []
    for _ in range(20):
        x = kept(table[tokens])
        for into, out in zip(inner[::2], inner[1::2], strict=True):
            x = x + kept(torch.tanh(norm(x) @ into.mT) @ out.mT)
        loss = F.cross_entropy(norm(x) @ head.mT, (tokens + 1) % 9)
        history.append(loss.detach())
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data.sub_(0.5 * slope)
    return torch.stack(history)


def centre(x):
    """Take the mean away."""
    return x - x.mean(-1, keepdim=True)


def saved(seed, converted=True, width=128):
    """The share of the processor's time that the converted block saves, forward and backward, of 512 tokens."""
    block, x = Block(width), torch.randn(4, 128, width)
    block.attention_norm, block.feedforward_norm = (nk.LayerNorm(width) for _ in range(2))
    other = Block(width - 1) if converted else block
    if converted:
        other.attention_norm, other.feedforward_norm = (nk.CRMSNorm(width) for _ in range(2))
    own, plain = seconds(*(passes(*part) for part in ((other, x[..., : width - converted]), (block, x))), rounds=15)
    return 1 - own / plain


def passes(block, x):
    """A forward and a backward pass."""
    x = x.clone().requires_grad_()
    return lambda: block(x).sum().backward()


CLAIMS = [
    Identity(
        "conversion",
        says="A Pre-LN transformer becomes a Pre-CRMSNorm transformer with the same outputs.",
        measure=conversion_error,
        bound=1e-12,
        breaks=partial(conversion_error, centred=False),
        against="RMS norms without centring",
        number="relative error",
        draws=5,
    ),
    Identity(
        "training",
        says="Training with a centred stream and RMS norms is the same training.",
        measure=training_gap,
        bound=1e-12,
        breaks=partial(training_gap, centred=False),
        against="RMS norms without centring",
        number="gap of the loss",
        draws=5,
    ),
    Measured(
        "time",
        says="It saves 1 % of the time of a Pre-LN block or more; normkit's kernels, on a processor.",
        measure=saved,
        wanted=above(0.01),
        control=partial(saved, converted=False),
        against="the Pre-LN block timed against itself",
        number="share of the time",
        draws=12,
        rule="mean",
        null=0.0,
        reach="proxy",
    ),
]
