"""What is claimed of batch norm without a mean: gradients that are bounded at any depth."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above, below
from normkit.claims.measures import randn, slope

DEPTHS = (10, 100, 1000)


def first_gradient(depth, orthogonal, mean, width):
    """The length of the gradient of the first layer of a linear network with a norm behind each layer."""
    norm = nk.BatchNormLinearBounded(width, mean_reduction=mean)
    weights = randn(depth, width, width)
    weights = torch.linalg.qr(weights).Q if orthogonal else weights / width**0.5
    x, first = randn(width, width), weights[0].clone().requires_grad_()
    for weight in (first, *weights[1:]):
        x = norm(x @ weight.mT)
    return torch.autograd.grad((x * torch.randn_like(x)).sum(), first)[0].norm()


def growth(seed, orthogonal=True, mean=False, networks=1, width=32):
    """The slope against the depth of the logarithm of this length, a mean over networks; a layer."""
    logs = [[first_gradient(depth, orthogonal, mean, width).log() for depth in DEPTHS] for _ in range(networks)]
    return slope(DEPTHS, torch.tensor(logs).mean(0))


def drift(seed, orthogonal=True):
    """The slope without its sign."""
    return abs(growth(seed, orthogonal, networks=8))


CLAIMS = [
    Measured(
        "bounded",
        says="With orthogonal weights the first layer's gradient does not grow or fall with the depth, up to 1,000.",
        measure=drift,
        wanted=below(1e-4),
        control=partial(drift, orthogonal=False),
        against="normal weights",
        number="|log gradient| a layer",
        draws=3,
    ),
    Measured(
        "normal-weights",
        says="With normal weights it grows exponentially.",
        measure=partial(growth, orthogonal=False),
        wanted=above(1e-3),
        control=growth,
        against="orthogonal weights",
        number="log gradient a layer",
        draws=3,
    ),
]
