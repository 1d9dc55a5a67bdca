"""Couplings of images that share one network.

The part is ``nanoflow``, whose options it takes.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from normkit import catalog
from normkit.density._parts import Plain
from normkit.density._recipe import Asked, Recipe


def build(asked: Asked, **options: Any) -> list[nn.Module]:
    """Build the parts."""
    channels, height, width = asked.event
    sizes = {"hidden": asked.hidden, "num_flows": asked.depth, "height": height, "width": width}
    return [Plain(catalog.create("nanoflow", channels, **{"embedding_channels": 4, "layers": 3, **sizes, **options}))]


FLOW = Recipe(build, depth=4, axes=(3,), small={"layers": 2})
