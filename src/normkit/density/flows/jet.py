"""Couplings of the patches of an image by transformers.

The parts are ``jet-coupling``. Options: ``patch``, ``layers``.
"""

from __future__ import annotations

from torch import nn

from normkit import catalog, check
from normkit.density._parts import Tokens
from normkit.density._recipe import FlowSizes, Recipe, patches


def build(sizes: FlowSizes, patch: int | None = None, layers: int = 2) -> list[nn.Module]:
    """Build the parts."""
    number, size, patch = patches(sizes, patch)
    check.divides("flow", "halves of a patch", 2, "numbers", size)
    options = {
        "num_tokens": number,
        "emb_dim": sizes.hidden,
        "num_heads": max(1, sizes.hidden // 16),
        "depth": layers,
    }
    blocks = (Flipped(catalog.create("jet-coupling", size, **options), bool(n % 2)) for n in range(sizes.depth))
    return [Tokens(one, patch, mean=False, labels=False) for one in blocks]


class Flipped(nn.Module):
    """A transform that sees the numbers of tokens in reverse, where asked to."""

    def __init__(self, transform: nn.Module, flipped: bool):
        super().__init__()
        self.transform, self.flipped = transform, flipped

    def _reverse(self, x):
        return x.flip(-1) if self.flipped else x

    def forward(self, x):
        """Return the image, and its log-determinants."""
        z, log_det = self.transform(self._reverse(x))
        return self._reverse(z), log_det

    def inverse(self, z):
        """Return what it is the image of."""
        return self._reverse(self.transform.inverse(self._reverse(z)))  # type: ignore[operator]


FLOW = Recipe(build, depth=4, axes=(3,), small={"layers": 1})
