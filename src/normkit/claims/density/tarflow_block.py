"""What the TarFlow block claims of its inverse."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized

TOKENS = 5


def block():
    """A block with a scale that is not small."""
    return randomized(nk.TarFlowBlock(3, 8, num_patches=TOKENS, head_dim=4, num_layers=2), 0.1)


def naive(module, z, order):
    """Invert token by token: each is affine in itself, so that two passes tell its scale and shift."""
    x = torch.zeros_like(z)
    for token in order:
        at = [module(torch.cat([x[:, :token], torch.full_like(x[:, token:], value)], 1))[0] for value in (0, 1)]
        low, high = (image[:, token] for image in at)
        x[:, token] = (z[:, token] - low) / (high - low)
    return x


def cached(seed, order=range(TOKENS)):
    """How far the inverse with a cache is from the naive one."""
    module, z = block(), randn(2, TOKENS, 3)
    return gap(module.inverse(z), naive(module, z, order))


def backwards(seed):
    """The same with the tokens inverted from the last to the first."""
    return cached(seed, [*reversed(range(TOKENS))])


def round_trip(seed, shifted=0.0):
    """How far the inverse of the image is from the start."""
    module, x = block(), randn(2, TOKENS, 3)
    return gap(module.inverse(module(x)[0] + shifted), x)


def of_another(seed):
    """The same with the image moved by 0.1."""
    return round_trip(seed, shifted=0.1)


CLAIMS = [
    Identity(
        "cached",
        says="The inverse with a cache equals the naive one.",
        measure=cached,
        bound=1e-10,
        breaks=backwards,
        against="tokens inverted from the last to the first",
    ),
    Identity(
        "round-trip",
        says="It is the inverse of the forward pass.",
        measure=round_trip,
        bound=1e-10,
        breaks=of_another,
        against="an image that was moved",
    ),
]
