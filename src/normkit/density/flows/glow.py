"""Couplings of images at several scales, of which half of the numbers leave after each.

Glow, arXiv 1807.03039; networks are ours. Option: ``levels``.
"""

from __future__ import annotations

from torch import nn

from normkit import check
from normkit.density._parts import Standard
from normkit.density._recipe import FlowSizes, Recipe
from normkit.density._scales import ChannelMix, ImageCoupling, Scaled, Squeeze


def build(sizes: FlowSizes, levels: int = 2) -> list[nn.Module]:
    """Build the parts."""
    (channels, height, width), parts = sizes.event, list[nn.Module]()
    for name, size in (("height", height), ("width", width)):
        check.divides("flow", "2 ** levels", 2 ** check.size("flow", "levels", levels, most=16), name, size)
    for level in range(levels):
        channels = channels if not level else channels // 2  # the other half has left
        parts.append(Scaled(Squeeze(), (channels, height, width)))
        channels, height, width = 4 * channels, height // 2, width // 2
        for _ in range(sizes.depth):
            step = Standard(channels, 3), ChannelMix(channels), ImageCoupling(channels, sizes.hidden)
            parts += [Scaled(part, (channels, height, width)) for part in step]
    return parts


FLOW = Recipe(build, depth=4, axes=(3,))
