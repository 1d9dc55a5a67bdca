"""What the paper of RMSNorm claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims._clock import seconds
from normkit.claims.kinds import Identity, Measured, above
from normkit.claims.language import LAYERNORM, Run, as_good
from normkit.claims.measures import change, cosine, gradient, randn


def scaled(seed, shift=0.0):
    """What changes when rows are multiplied by 3, or shifted."""
    x = randn(8, 16)
    return change(nk.RMSNorm(16, eps=0.0, affine=False), x, 3 * x + shift)


def radial(seed, eps=0.0, size=1.0):
    """The largest cosine of a row and its gradient."""
    x = size * randn(8, 16)
    return cosine(gradient(nk.RMSNorm(16, eps=eps, affine=False), x), x)


def saved(seed, one="rmsnorm", kernels=False):
    """The share of the processor's time of a layer norm that is saved, forward and backward, of 4,096 rows of 1,024."""
    x = torch.randn(ROWS, 1024, requires_grad=True)
    modules = {"rmsnorm": nk.RMSNorm(1024), "layernorm": nk.LayerNorm(1024)}
    own, other = seconds(*(run((modules if kernels else FORMULAS)[name], x) for name in (one, "layernorm")), rounds=3)
    return 1 - own / other


def rms(x):
    """The formula of RMSNorm."""
    return GAIN * (x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt())


def layer(x):
    """The formula of LayerNorm, written in the same way."""
    x = x - x.mean(-1, keepdim=True)
    return GAIN * (x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()) + SHIFT


def run(norm, x):
    """A forward and a backward pass."""
    return lambda: torch.autograd.grad(norm(x).sum(), x)


ROWS = 4096
GAIN, SHIFT = (torch.ones(1024, requires_grad=True) for _ in range(2))
FORMULAS = {"rmsnorm": rms, "layernorm": layer}

CLAIMS = [
    Identity(
        "scale",
        says="A positive scale of a row does not matter.",
        measure=scaled,
        bound=1e-10,
        breaks=partial(scaled, shift=1.0),
        against="rows shifted too",
    ),
    Identity(
        "gradient-orthogonal",
        says="The gradient of a row is orthogonal to it.",
        measure=radial,
        bound=1e-10,
        breaks=partial(radial, eps=1e-6, size=1e-3),
        against="eps of 1e-6 and rows of size 1e-3",
        number="cosine",
    ),
    Measured(
        "time-formulas",
        says="Written out in PyTorch it saves 7 % of a layer norm's time or more.",
        measure=saved,
        wanted=above(0.07),
        control=partial(saved, one="layernorm"),
        against="a layer norm timed against itself",
        number="share of the time",
        draws=12,
        rule="mean",
        null=0.0,
    ),
    Measured(
        "time-kernels",
        says="Of normkit's kernels on a processor too.",
        measure=partial(saved, kernels=True),
        wanted=above(0.07),
        control=partial(saved, one="layernorm", kernels=True),
        against="a layer norm timed against itself",
        number="share of the time",
        draws=12,
        rule="mean",
        null=0.0,
    ),
    as_good(
        "as-layernorm",
        "A decoder's loss is within 1 % of that with layer norm.",
        run=Run("rmsnorm"),
        over=LAYERNORM,
        by=1.0,
    ),
]
