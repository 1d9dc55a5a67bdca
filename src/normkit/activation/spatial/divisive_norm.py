"""Divisive normalization: each position by its neighbourhood."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops
from normkit.activation._layout import in_layout_of
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts, less, own_sums
from normkit.statistics import accurate


@method(
    "divisive-norm",
    paper="Normalizing the Normalizers: Comparing and Extending Network Normalization Schemes (Ren et al., 2016), "
    "arXiv 1611.04520",
    evidence="equations",
    shape="N C H W",
    over="C H W",
    replaces=("batchnorm", "local-response-norm"),
    aliases=("local-contrast-norm",),
    invariant=("shift",),
    provenance="the paper's equations in float64 in tests/activation/test_spatial_neighbours.py",
)
class DivisiveNorm(Norm):
    """Subtract the mean of the neighbourhood, and divide by the neighbourhood's root mean square.

    For networks on few images at a time, after what neurons of the visual cortex do: between layer norm, whose window
    is the whole image, and local response norm. With means over all channels of the positions of a square window that
    lie inside of the image,

        v = x - mean over window of x,      y = weight * v / sqrt(sigma² + mean over window of v²) + bias

    Args:
        num_features: C, the number of channels.
        center_window: width of the window of the mean, odd.
        scale_window: width of the window of the mean square, odd.
        sigma: keeps quiet regions quiet: a deviation below it is not raised to 1.
        affine: learn ``weight`` and ``bias``.

    Input ``(N, C, H, W)``.

    Normalizing the Normalizers: Comparing and Extending Network Normalization Schemes (Ren, Liao, Urtasun, Sinz, Zemel,
    2016), arXiv 1611.04520.
    """

    def __init__(
        self,
        num_features: int,
        *,
        center_window: int = 3,
        scale_window: int = 5,
        sigma: float = 1.0,
        affine: bool = True,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.center_window = _odd(self, "center_window", center_window)
        self.scale_window = _odd(self, "scale_window", scale_window)
        self.sigma = check.number(self, "sigma", sigma, 0)
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features, 4, 4)
        exact = accurate(x)
        v = exact - _around(exact, self.center_window)
        y = v * (self.sigma**2 + _around(v.square(), self.scale_window)).rsqrt()
        return in_layout_of(x, ops.affine(y, self.weight, self.bias).to(x.dtype))

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize images whose channels are cut, by a message of moments, or whose space is, by an exchange of them.

        The sum over channels of (x - m)² about any m is a number of their sum and their sum of squares.
        """
        check.channels_first(self, part.whole, self.num_features, 4, 4)
        x, count = accurate(part.local), part.whole.shape[1]
        (maps,) = part.total((1,), own_sums(x, (1,)).flatten(0, 1))
        reach, before = self.center_window // 2 + self.scale_window // 2, []
        for axis in (2, 3):
            maps, missing = part.with_neighbours(maps, axis, axis, reach, reach)
            before.append(reach - missing[0])
        mean, square = (maps / count).unflatten(0, (2, -1)).unbind()
        around = _around(mean, self.center_window)
        spread = _around((square - 2 * around * mean + around.square()).clamp(min=0), self.scale_window)
        around, spread = (_cut(value, before, x.shape[2:]) for value in (around, spread))
        r = (self.sigma**2 + spread).rsqrt().to(x.dtype)
        weight, bias = (part.parameter(self, n, p, 1) for n, p in (("weight", self.weight), ("bias", self.bias)))
        return in_layout_of(part.local, ops.affine(less(x, around) * r, weight, bias).to(part.local.dtype))


def _odd(owner: object, name: str, value: int) -> int:
    if check.size(owner, name, value) % 2 == 0:
        raise ValueError(f"{type(owner).__name__}: {name} must be odd, not {value}")
    return value


def _around(x: Tensor, window: int) -> Tensor:
    """Mean over the channels and a window of positions, (N, 1, H, W)."""
    mean = x.mean(1, keepdim=True)
    return F.avg_pool2d(mean, window, 1, window // 2, count_include_pad=False) if mean.numel() else mean


def _cut(x: Tensor, begin: list[int], shape: torch.Size) -> Tensor:
    """The positions of a shape from ``begin`` on."""
    return x.narrow(2, begin[0], shape[0]).narrow(3, begin[1], shape[1])
