"""What SAWN claims of styles along a flow."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

SIZE = 32


def match(seed, along="flow"):
    """The correlation of the output with the texture where the flow has brought it, at a layer as it starts.

    The input has the code of each place, the style the texture as its shift; the flow leads 8 to 12 pixels away.
    """
    smooth = F.avg_pool2d(randn(1, 4, SIZE + 40, SIZE + 40), 9, stride=1)
    texture = smooth / smooth.std()
    flow = 10 + 2 * torch.tanh(20 * F.avg_pool2d(randn(1, 2, SIZE + 24, SIZE + 24), 25, stride=1))
    place = torch.arange(SIZE, dtype=torch.float64)
    column, row = place + flow[:, 0], place[:, None] + flow[:, 1]
    at = torch.stack([column, row], -1) * 2 / (texture.shape[-1] - 1) - 1
    moved = F.grid_sample(texture, at, align_corners=True)
    code = torch.stack([fun(place[axis] / 5).expand(SIZE, SIZE) for fun in (torch.sin, torch.cos)
                        for axis in ((None, slice(None)), (slice(None), None))])[None]  # fmt: skip
    style = torch.cat([texture, torch.zeros_like(texture)], 1)
    used = {"flow": flow, "zero": torch.zeros_like(flow)}[along]
    y = nk.SAWN(4, hidden_channels=8).double()(code, style, used).detach()
    return torch.corrcoef(torch.stack([y.flatten(), moved.flatten()]))[0, 1]


CLAIMS = [
    Measured(
        "follows",
        says="With the right flow the output follows the texture where the flow has brought it.",
        measure=match,
        wanted=above(0.9),
        control=partial(match, along="zero"),
        against="a flow of zero",
        number="correlation",
        reach="proxy",
    )
]
