"""Views of a batch: those that an adapter's user brings, and a random one where there are none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check

Views = Tensor | Sequence[Tensor]  # one tensor, or its parts along the first axis

NOISE = 0.05  # of the batch's deviation
SHIFT = 8  # the share of a side, as a divisor


def view(x: Tensor) -> Tensor:
    """Return a batch changed as little as leaves its classes: images flipped, shifted, of other contrast; and noise.

    Each sample of images (N, C, H, W) is flipped or not, has a contrast of 0.8 to 1.2, and is shifted with the batch by
    up to an eighth of its side. Noise of a twentieth of the batch's deviation is added to all inputs.
    """
    if not x.is_floating_point():
        return x
    if x.dim() == 4:
        each = (len(x), 1, 1, 1)
        x = torch.where(torch.rand(each, dtype=torch.float32, device=x.device) < 0.5, x.flip(-1), x)
        mean = x.mean((1, 2, 3), keepdim=True)
        x = mean + (x - mean) * (0.8 + 0.4 * torch.rand(each, device=x.device, dtype=x.dtype))
        most = [size // SHIFT for size in x.shape[-2:]]
        shifts = [int(torch.randint(-m, m + 1, (), device="cpu")) for m in most]
        x = x.roll(shifts, (-2, -1))
    return x + NOISE * x.std() * torch.randn_like(x) if x.numel() > 1 else x


def check_views(owner: object, views: Views, sizes: Sequence[int | None], x: Tensor) -> None:
    """Require views of these ``sizes``, the first of them how many there are, or None for one or more."""
    if isinstance(views, list | tuple):
        for at, part in enumerate(views):
            check.shape(owner, f"views[{at}]", part, sizes[1:], x)
    else:
        check.shape(owner, "views", views, sizes, x)
    if not len(views) or sizes[0] not in (None, len(views)):
        raise ValueError(f"{check.whose(owner)}: views must be {sizes[0] or 'one or more'} tensors, not {len(views)}")
