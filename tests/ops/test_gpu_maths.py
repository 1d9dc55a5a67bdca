"""What the GPU's kernels make of a number: value and slope of every function, from nothing to where it is saturated."""

import math

import pytest
import torch
from test_pointwise_ops import NAMES, call, core

from normkit import ops
from normkit.kernels import cuda
from normkit.ops import paths
from place import DEVICE, KERNEL, kernels

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
WIDTH = 256
MAGNITUDES = torch.cat([torch.logspace(-30, 10, 4 * WIDTH), torch.linspace(0.01, 12, 28 * WIDTH)])
X = torch.cat([MAGNITUDES, -MAGNITUDES]).view(-1, WIDTH)


def by_kernel(name, x):
    """Values and slopes of float32 numbers at an alpha or beta of 1."""
    x = x.to(DEVICE).requires_grad_()
    with kernels(), paths.watch() as taken:
        y = call(name, x, torch.ones(1, device=DEVICE), None, None, None)
        [slope] = torch.autograd.grad(y, x, torch.ones_like(y))
    assert {path.by for path in taken} == {KERNEL}
    return y.detach().double().cpu(), slope.double().cpu()


def exactly(name, x):
    x = x.double().requires_grad_()
    y = x.sign() * -torch.expm1(-x.abs()) if name == "derf-expsign" else core(name, x, 1.0, None, x.shape[-1])
    return y.detach(), torch.autograd.grad(y.sum(), x)[0]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_slopes_err_by_few_units_in_the_last_place(name):
    (y, slope), (right, steepness) = by_kernel(name, X), exactly(name, X)
    unit = torch.nextafter(right.float().abs(), torch.tensor(math.inf)).double() - right.float().abs().double()
    assert ((y - right).abs() / unit).max() < 4.0
    assert (slope - steepness).abs().max() < 4e-7 * steepness.abs().max()
    half = len(y) // 2
    assert torch.equal(y[:half], -y[half:])
    assert torch.equal(slope[:half], slope[half:])


@pytest.mark.parametrize("function", [name for name in NAMES if name != "eln"])
def test_infinities_have_the_limit_and_nan_stays(function):
    y, _ = by_kernel(function, torch.tensor([[math.inf, -math.inf, math.nan, 0.0]]))
    limit = math.nan if function == "derf-isru" else 1.0
    torch.testing.assert_close(y[0], torch.tensor([limit, -limit, math.nan, 0.0]).double(), equal_nan=True)


def test_alpha_and_shift_are_taken_in_this_order():
    x, alpha, shift = torch.tensor([[0.5, -2.0]]), torch.tensor([0.3]), torch.tensor([2.0])
    with kernels():
        y = ops.derf(x.to(DEVICE), alpha.to(DEVICE), shift.to(DEVICE))
    torch.testing.assert_close(y.cpu(), torch.erf(0.3 * x + 2.0))
