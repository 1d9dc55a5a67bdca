"""Couplings of images that share one network.

The part is ``nanoflow``, whose options it takes.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from normkit import catalog
from normkit.density._parts import Plain
from normkit.density._recipe import FlowSizes, Recipe


def build(sizes: FlowSizes, **options: Any) -> list[nn.Module]:
    """Build the parts."""
    channels, height, width = sizes.event
    every = {"hidden": sizes.hidden, "num_flows": sizes.depth, "height": height, "width": width}
    return [Plain(catalog.create("nanoflow", channels, **{"embedding_channels": 4, "layers": 3, **every, **options}))]


FLOW = Recipe(build, depth=4, axes=(3,), small={"layers": 2})
