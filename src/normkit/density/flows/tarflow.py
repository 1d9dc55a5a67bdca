"""Transformers over the numbers of a vector or the patches of an image, each by those before it.

The parts are ``tarflow-block``. Options: ``patch``, ``layers``, ``head_dim``; of sampling ``guidance`` and
``attn_temp``.
"""

from __future__ import annotations

from torch import nn

from normkit import catalog
from normkit.density._parts import Tokens
from normkit.density._recipe import FlowSizes, Recipe, patches


def build(sizes: FlowSizes, patch: int | None = None, layers: int = 2, head_dim: int = 16) -> list[nn.Module]:
    """Build the parts."""
    number, size, patch = patches(sizes, patch)
    options = {
        "num_patches": number,
        "num_layers": layers,
        "head_dim": min(head_dim, sizes.hidden),
        "num_classes": sizes.classes,
    }
    orders = ("flip" if n % 2 else "identity" for n in range(sizes.depth))
    blocks = (catalog.create("tarflow-block", size, sizes.hidden, permutation=order, **options) for order in orders)
    return [Tokens(block, patch, mean=True, labels=bool(sizes.classes)) for block in blocks]


FLOW = Recipe(build, depth=4, axes=(1, 3), labels=True, small={"layers": 1})
