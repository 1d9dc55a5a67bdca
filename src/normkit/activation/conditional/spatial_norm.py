"""MoVQ's norm: a gain and a shift for every pixel, from the quantized vectors that are decoded."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import catalog, check
from normkit.activation.conditional._map import run
from normkit.catalog import method
from normkit.kinds import NORM
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "spatial-norm",
    paper="MoVQ: Modulating Quantized Vectors for High-Fidelity Image Generation (Zheng et al., 2022), "
    "arXiv 2209.09002",
    evidence="library",
    shape="N C H W",
    over="C/G H W",
    inputs={"map": "N map_channels h w"},
    example={"map_channels": 3, "norm": "groupnorm:num_groups=2"},
    replaces=("groupnorm",),
    aliases=("spatially-conditional-norm", "SpatialNorm", "KVAEDecoderSpatialNorm2D"),
    provenance="diffusers' SpatialNorm and Kandinsky6SRLatentUpscalerModulatedNorm",
    exempt={
        "batches rows": "the order of sums in a matrix product follows the number of its rows",
        "batches gains": "the order of sums in a matrix product follows the number of threads",
    },
)
class SpatialNorm(Norm):
    """Normalize an image, then give every pixel a gain and a shift made from a map, of any size.

    For decoders of quantized images, whose repeated vectors leave repeated patches. For a map of classes take
    ``spade``; where one vector conditions a whole image, ``adaptive-groupnorm``. With p the map resized to the nearest
    entry,

        y = norm(x) * gain(p) + shift(p)

    ``gain`` and ``shift`` are linear layers of the channels of one pixel. The gain is not 1 more, as in ``spade``.

    Args:
        num_features: C.
        map_channels: channels of the map.
        norm: a norm of images by name, with arguments as in ``"groupnorm:num_groups=8"``; by default of 32 groups.

    Input x ``(N, C, H, W)`` and map ``(N, map_channels, h, w)``, or both with other axes of space, the same number.

    MoVQ: Modulating Quantized Vectors for High-Fidelity Image Generation (Zheng et al., 2022), arXiv 2209.09002.
    """

    def __init__(self, num_features: int, *, map_channels: int, norm: str = "groupnorm:eps=1e-6"):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.map_channels = check.size(self, "map_channels", map_channels)
        choice = catalog.choose(self, "norm", norm, NORM)
        if not choice.card.shape.image or choice.card.inputs:
            raise ValueError(f"{type(self).__name__}: norm must be of images alone, not {norm!r}")
        self.norm = choice.create(num_features)
        self.gain, self.shift = (nn.Linear(map_channels, num_features) for _ in range(2))

    def forward(self, x: Tensor, map: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``map``."""
        check.channels_first(self, x, self.num_features, 3, 5)
        check.values(self, "map", map, (len(x), self.map_channels, *[None] * (x.dim() - 2)), x)
        pixels = F.interpolate(map, size=x.shape[2:], mode="nearest").movedim(1, -1)
        gain, shift = (accurate(run(layer, pixels)).movedim(-1, 1) for layer in (self.gain, self.shift))
        return torch.addcmul(shift, accurate(self.norm(x)), gain).to(x.dtype)
