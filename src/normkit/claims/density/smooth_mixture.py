"""What smooth flows claim at the seam of the circle."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn


def jump(log_slope):
    """The jump of the second derivative of a log-density across x = 0 = 1."""
    sides = []
    for place in (0.0, 1 - 1e-15):
        x = torch.tensor([place], dtype=torch.float64, requires_grad=True)
        first = torch.autograd.grad(log_slope(x).sum(), x, create_graph=True)[0]
        sides.append(torch.autograd.grad(first.sum(), x)[0])
    return (sides[0] - sides[1]).abs().max()


def smooth(seed):
    """Of a smooth mixture."""
    module, shape = nk.SmoothMixture(3, periodic=True), (1, 3)
    inputs = [torch.rand(shape, dtype=torch.float64), randn(*shape).abs(), randn(*shape).abs(), randn(*shape)]
    return jump(lambda x: module(x, *inputs)[1])


def spline(seed):
    """Of a rational-quadratic spline whose slopes at both ends are one."""
    module, slopes = nk.RationalQuadraticSpline(4), randn(1, 5)
    slopes[:, -1] = slopes[:, 0]
    widths, heights = randn(1, 4), randn(1, 4)
    return jump(lambda x: module(x, widths, heights, slopes)[1])


CLAIMS = [
    Identity(
        "seam",
        says="The log-density is smooth across the seam of the circle.",
        measure=smooth,
        bound=1e-6,
        breaks=spline,
        against="a rational-quadratic spline",
        number="jump of the second derivative",
    )
]
