"""Contract of invertible maps: the inverse, and the log-determinant."""

import pytest
import torch

import normkit as nk
from normkit.contract.subject import build, close, methods
from normkit.contract.values import over
from normkit.kinds.module import TRANSFORM

METHODS = methods(lambda kind: kind is TRANSFORM)


def inputs(card, batch):
    return card.draw(4, batch, dtype=torch.float64)


@pytest.mark.line("inverse")
@pytest.mark.parametrize("name", METHODS)
@over(dtype=[torch.float64, torch.float32])
def test_the_inverse_gives_the_input_back(name, dtype):
    module, (x, *others) = build(name, 4, dtype), inputs(nk.card(name), 5)
    x, *others = (value.to(dtype) for value in (x, *others))
    z, log_det = module(x, *others)
    back = module.inverse(z, *others)
    back, inverse_log_det = back if isinstance(back, tuple) else (back, -log_det)
    # slopes from 1e-3 to 1e3 multiply the rounding of z
    tolerance = 1e4 * torch.finfo(dtype).eps
    close(back, x, rtol=tolerance, atol=tolerance)
    close(inverse_log_det, -log_det, rtol=tolerance, atol=tolerance)


SCALES = {"near": 1e-6, "far": 1e6}


@pytest.mark.line("scales")
@pytest.mark.parametrize("name", [name for name in METHODS if not nk.card(name).shape.kind])  # of any numbers
@over(place=SCALES, dtype=[torch.float64, torch.float32])
def test_small_and_large_numbers_come_back(name, place, dtype):
    module, (x, *others) = build(name, 4, dtype), inputs(nk.card(name), 5)
    x, *others = (value.to(dtype) for value in (SCALES[place] * x, *others))
    z = module(x, *others)[0]
    back = module.inverse(z, *others)
    # a shift takes a number of 1e-6 among those of 1, of which the image keeps so many digits
    tolerance = 1e3 * torch.finfo(dtype).eps * max(1, SCALES[place])
    close(back[0] if isinstance(back, tuple) else back, x, rtol=0, atol=tolerance)


@pytest.mark.line("log-det")
@pytest.mark.parametrize("name", METHODS)
def test_the_log_determinant_is_that_of_the_jacobian(name):
    module, (x, *others) = build(name, 4), inputs(nk.card(name), 1)
    jacobian = torch.autograd.functional.jacobian(lambda x: module(x, *others)[0], x)
    _, want = torch.linalg.slogdet(jacobian.reshape(x.numel(), x.numel()))
    close(module(x, *others)[1].sum(), want)
