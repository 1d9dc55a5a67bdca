"""Transformers over the numbers of a vector or the patches of an image, each by those before it.

The parts are ``tarflow-block``. Options: ``patch``, ``layers``, ``head_dim``; of sampling ``guidance`` and
``attn_temp``.
"""

from __future__ import annotations

from torch import nn

from normkit import catalog
from normkit.density._parts import Tokens
from normkit.density._recipe import Asked, Recipe, patches


def build(asked: Asked, patch: int | None = None, layers: int = 2, head_dim: int = 16) -> list[nn.Module]:
    """Build the parts."""
    number, size, patch = patches(asked, patch)
    options = {
        "num_patches": number,
        "num_layers": layers,
        "head_dim": min(head_dim, asked.hidden),
        "num_classes": asked.classes,
    }
    orders = ("flip" if n % 2 else "identity" for n in range(asked.depth))
    blocks = (catalog.create("tarflow-block", size, asked.hidden, permutation=order, **options) for order in orders)
    return [Tokens(block, patch, mean=True, labels=bool(asked.classes)) for block in blocks]


FLOW = Recipe(build, depth=4, axes=(1, 3), labels=True, small={"layers": 1})
