"""The kernel of splines: held to its formula in float64, on every instruction set, and to its own derivatives."""

import math

import pytest
import torch

from normkit import create, ops
from normkit.kernels import special
from normkit.ops.spline import Knots, spline

F64 = torch.float64
BOXES = {False: (-2.0, 2.0, -1.0, 3.0), True: (-3.0, 3.0, -3.0, 3.0)}
SPREADS = {"even": 0.0, "usual": 1.0, "wide": 4.0}  # of what a network returns


def drawn(bins, tails, spread, count=61, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = 2.9 * torch.rand(count, generator=g, dtype=F64) - 0.95
    x = 4 * x if tails else x
    return x, *(spread * torch.randn(count, n, generator=g, dtype=F64) for n in (bins, bins, bins + 1 - 2 * tails))


def both(knots, inverse, tensors, formula):
    """Values, logarithms and all gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    with ops.paths.formula_only() if formula else ops.paths.watch() as taken:
        y, log_slope = spline(knots, *leaves, inverse=inverse)
        sent = torch.linspace(-1, 2, y.numel(), dtype=F64).reshape(y.shape).to(y.dtype)
        grads = torch.autograd.grad((y * sent + log_slope * sent.flip(0)).sum(), leaves)
    if not formula:
        assert [path.why for path in taken] == [None, None]
    return [t.detach().double() for t in (y, log_slope, *grads)]


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("tails", [False, True])
def test_the_kernel_is_its_formula(tails, inverse):
    for bins in (1, 2, 5, 8, 33):
        knots = Knots(bins, BOXES[tails], tails)
        for spread in SPREADS.values():
            tensors = drawn(bins, tails, spread)
            want = both(knots, inverse, tensors, True)
            found = both(knots, inverse, tensors, False)
            single = both(knots, inverse, [t.float() for t in tensors], False)
            rounded = both(knots, inverse, [t.float().double() for t in tensors], True)
            for one, other, rough, near in zip(found, want, single, rounded, strict=True):
                size = 1 + (other.abs().max().item() if other.numel() else 0)
                torch.testing.assert_close(one, other, rtol=0, atol=2e-11 * size, msg=f"{bins} bins, {spread}")
                torch.testing.assert_close(rough, near, rtol=1e-6, atol=1e-6 * size, msg=f"{bins} bins, {spread}")


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_what_no_bin_holds_passes_unchanged_and_sends_nothing_to_the_knots(dtype):
    edge = torch.tensor([0.1], dtype=dtype)  # which float32 rounds up
    x = torch.cat([-edge, edge, -edge * 1.0001, edge * 1.0001, *(torch.tensor([v]) for v in (math.inf, math.nan))])
    x = x.to(dtype).requires_grad_()
    raw = [torch.randn(6, n, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_() for n in (4, 4, 3)]
    y, log_slope = spline(Knots(4, (-0.1, 0.1, -0.1, 0.1), True), x, *raw)
    torch.testing.assert_close(y, x, equal_nan=True)
    assert (log_slope.abs() < 1e-6).all()  # the slopes at the ends are 1
    grads = torch.autograd.grad(y[2:].sum() + log_slope.sum(), [x, *raw])
    assert (grads[0][2:] == 1).all()
    assert all((grad[2:] == 0).all() for grad in grads[1:])
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.usefixtures("widest")
def test_knots_are_met_from_either_side_alike():
    """At a knot, and a little beside it, curve and slope are the same to rounding."""
    knots, raw = Knots(8, BOXES[True], True), drawn(8, True, 1.0, 1)[1:]
    width = 6e-3 + (6 - 8 * 6e-3) * torch.softmax(raw[0][0], 0)
    places = -3 + width.cumsum(0)[:-1]
    for shift in (-1e-13, 0.0, 1e-13):
        tensors = [places + shift, *(t.expand(7, -1) for t in raw)]
        y, log_slope = spline(knots, *tensors)
        with ops.paths.formula_only():
            want = spline(knots, places, *tensors[1:])
        torch.testing.assert_close((y, log_slope), want, rtol=0, atol=1e-11)
        back, negative = spline(knots, y, *tensors[1:], inverse=True)
        torch.testing.assert_close((back, negative), (tensors[0], -log_slope), rtol=0, atol=1e-11)


@pytest.mark.usefixtures("widest")
def test_numbers_of_a_network_may_be_extreme_or_nan():
    knots = Knots(4, BOXES[True], True)
    x = torch.linspace(-2.9, 2.9, 9, dtype=F64)
    huge = [t.sign() * 1e6 for t in drawn(4, True, 1.0, 9)[1:]]
    for inverse in (False, True):
        found, want = (both(knots, inverse, [x, *huge], formula) for formula in (False, True))
        assert all(t.isfinite().all() for t in found[:2])
        torch.testing.assert_close(found[:2], want[:2], rtol=1e-9, atol=1e-9)
    broken = [t.clone() for t in drawn(4, True, 1.0, 9)[1:]]
    broken[0][3, 2] = math.nan
    y, log_slope = spline(knots, x, *broken)
    assert y.isnan().tolist() == log_slope.isnan().tolist() == [i == 3 for i in range(9)]


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("tails", [False, True])
def test_derivatives_of_first_and_second_order(tails, inverse):
    knots = Knots(3, BOXES[tails], tails)
    tensors = [t.requires_grad_() for t in drawn(3, tails, 1.0, 5)]

    def call(*tensors):
        return spline(knots, *tensors, inverse=inverse)

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("which", [[0], [1], [0, 1]])
def test_a_batch_of_gradients_is_that_of_each(which):
    tensors = [t.requires_grad_() for t in drawn(4, False, 1.0, 6)]
    results = [spline(Knots(4, BOXES[False]), *tensors)[at] for at in which]
    sent = torch.randn(3, 6, dtype=torch.float64)
    batches = [sent] * len(which)
    together = torch.autograd.grad(results, tensors, batches, is_grads_batched=True, retain_graph=True)
    for at, one in enumerate(sent):
        alone = torch.autograd.grad(results, tensors, [one] * len(which), retain_graph=True)
        torch.testing.assert_close([own[at] for own in together], [*alone])


def test_gaps_and_leading_axes_change_nothing():
    raw = torch.randn(17, 4, 6, generator=torch.Generator().manual_seed(0), dtype=F64).permute(1, 2, 0)
    x, parts = torch.linspace(-2, 2, 24, dtype=F64).reshape(6, 4).T, raw.split([6, 6, 5], -1)
    knots = Knots(6, BOXES[True], True)
    assert not any(t.is_contiguous() for t in (x, *parts))
    torch.testing.assert_close(both(knots, False, [x, *parts], False), both(knots, False, [x, *parts], True))


def test_what_the_kernel_does_not_take_goes_to_the_formula():
    knots, (x, *raw) = Knots(4, BOXES[True], True), drawn(4, True, 1.0)
    want = spline(knots, x, *raw)
    mapped = torch.func.vmap(lambda *tensors: spline(knots, *tensors))(x, *raw)
    torch.testing.assert_close(mapped, want)
    many = Knots(special.MOST_BINS + 1, BOXES[True], True, (1e-4, 1e-4, 1e-3))
    with ops.paths.watch() as taken:
        spline(many, *drawn(many.bins, True, 1.0, 3))
        spline(knots, x[:0], *(t[:0] for t in raw))
    assert [path.by for path in taken] == ["formula", "formula"]


def test_a_least_slope_of_one_holds_with_tails():
    module = create("rational-quadratic-spline", 4, tails="linear", min_derivative=1.0)
    x = torch.linspace(-0.9, 0.9, 5)
    raw = [torch.zeros(5, n) for n in (4, 4, 3)]
    for formula in (False, True):
        with ops.paths.formula_only() if formula else ops.paths.watch():
            assert all(t.isfinite().all() for t in module(x, *raw))


def test_c_holds_a_record_of_splines_against_itself():
    if special.library() is None:
        pytest.skip(special.absent())
    library, (x, *raw) = special.library(), [t.float() for t in drawn(4, False, 1.0, 6)]
    y, log_slope, short = torch.empty(6), torch.empty(6), torch.empty(5)
    rest, grads = (*BOXES[False], 1e-3, 1e-3, 1e-3), (None, None, None, None)
    for plan, count, arrays, word in (
        ((1, 4, 0, 0), 7, (x, *raw, y, log_slope), "x of 24 bytes"),
        ((1, 5, 0, 0), 6, (x, *raw, y, log_slope), "widths of 96 bytes"),
        ((1, 4, 0, 0), 6, (x, raw[0], raw[2], raw[2], y, log_slope), "heights of 120 bytes"),
        ((1, 4, 1, 0), 6, (x, *raw, y, log_slope), "slopes of 120 bytes"),
        ((1, 4, 0, 0), 6, (x, *raw, short, log_slope), "y of 20 bytes"),
        ((1, 4, 0, 0), 6, (x, *raw, y, None), "log_slope of 0 bytes"),
        ((2, 4, 0, 0), 6, (x, *raw, y, log_slope), "an element type"),
        ((1, 4, 2, 0), 6, (x, *raw, y, log_slope), "the rule"),
        ((1, 4, 0, -1), 6, (x, *raw, y, log_slope), "the rule"),
        ((1, 0, 0, 0), 6, (x, *raw, y, log_slope), "a size"),
        ((1, 1025, 0, 0), 6, (x, *raw, y, log_slope), "a size"),
        ((1, 4, 0, 0), 2**61, (x, *raw, y, log_slope), "a size"),
    ):
        with pytest.raises(ValueError, match=f"refuses {word}"):
            library.spline(special.SPLINE.pack(*plan, *rest), count, *arrays)
    plan = special.SPLINE.pack(1, 4, 0, 0, *rest)
    for at, word in enumerate(("dy", "dlog", "dx", "dwidths", "dheights", "dslopes")):
        arrays = [y, log_slope, *grads]
        arrays[at] = short
        with pytest.raises(ValueError, match=f"refuses {word} of 20 bytes"):
            library.spline_backward(plan, 6, x, *raw, *arrays)
