"""Quotients of which both parts vanish: on both sides of where their series end, from fifty digits."""

import mpmath
import pytest
import torch

from normkit.manifold import _frechet, _subspaces

mpmath.mp.dps = 50


def arc(y):
    return mpmath.asinh(mpmath.sqrt(y)) if y > 0 else mpmath.asin(mpmath.sqrt(-y))


def sinc(m):
    return mpmath.sin(mpmath.sqrt(m)) / mpmath.sqrt(m)


def over_sine(cosine):
    return mpmath.acos(cosine) / mpmath.sqrt(1 - cosine**2)


def quotient(y):
    return 4 * arc(y) / mpmath.sqrt(abs(y * y + y))


def turned(function):
    """Of the angle's cosine, told by what it lacks of 1."""
    return lambda t: function(1 - t)


CASES = {  # the function, what it is, and how far its series goes
    "sinc": (_subspaces._sinc, sinc, _subspaces.SMALL),
    "slope of sinc": (_subspaces._sinc_slope, lambda m: mpmath.diff(sinc, m), _subspaces.SMALL),
    "angle over sine": (turned(_subspaces.angle_over_sine), turned(over_sine), _subspaces.SMALL),
    "its slope": (
        turned(lambda c: _subspaces._angle_slope(c, _subspaces.angle_over_sine(c))),
        turned(lambda c: mpmath.diff(over_sine, c)),
        _subspaces.SMALL,
    ),
    "beyond sine": (
        turned(_subspaces._beyond_sine),
        turned(lambda s: mpmath.acos(mpmath.sqrt(s)) ** 2 - (1 - s)),
        _subspaces.SMALL,
    ),
    "quotient": (_frechet._quotient, quotient, _frechet.SMALL),
    "slope of the quotient": (_frechet._quotient_slope, lambda y: mpmath.diff(quotient, y), _frechet.SMALL),
    "quotient below 0": (lambda y: _frechet._quotient(-y), lambda y: quotient(-y), _frechet.SMALL),
    "its slope below 0": (
        lambda y: _frechet._quotient_slope(-y),
        lambda y: mpmath.diff(quotient, -y),
        _frechet.SMALL,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 1.01, 100.0])
def test_a_quotient_is_that_of_fifty_digits(case, share):
    function, wanted, end = CASES[case]
    at = 1 - (1 - end * share)  # so that 1 less it is exact
    got = function(torch.tensor(at, dtype=torch.float64)).item()
    # beyond its end a part of the digits cancels
    assert got == pytest.approx(float(wanted(mpmath.mpf(at))), rel=3e-12 if share < 1 else 3e-10, abs=0)
