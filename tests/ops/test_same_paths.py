"""Kernel and formula agree where numbers end: sums that overflow, infinities, NaN, zero entries."""

import math

import pytest
import torch

from normkit import kernels, ops
from normkit.ops import paths

live = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))
BASE = torch.linspace(-1, 2, 24).view(3, 8)
WEIGHT = torch.linspace(0.5, 1.5, 8)


def with_entry(value, whole=False):
    x = BASE.clone()
    x[1, slice(None) if whole else 2] = value
    return x


def run(act, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    y = act(*leaves)
    return [y.detach(), *torch.autograd.grad(y.sum(), leaves)]


def assert_same(act, *tensors):
    got = run(act, tensors)
    with paths.formula_only():
        want = run(act, tensors)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-5, atol=1e-5 * max(1.0, b.nan_to_num(0, 0, 0).abs().max().item()), equal_nan=True
        )
    return got


@live
@pytest.mark.parametrize("eps", [1e-6, 0.0])
@pytest.mark.parametrize("place", ["inside", "outside", "floor"])
@pytest.mark.parametrize("whole", [False, True], ids=["an entry", "a row"])
def test_a_sum_of_squares_that_overflows_passes_no_gradient(place, eps, whole):
    rule = ops.Row(eps=eps, eps_place=place)
    y, dx, _ = assert_same(lambda x, w: ops.row_norm(x, w, None, rule), with_entry(1e20, whole), WEIGHT)
    assert torch.equal(y[1], torch.zeros(8))
    assert torch.equal(dx[1], torch.zeros(8))


@live
@pytest.mark.parametrize("place", ["inside", "outside", "floor"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_entry_that_is_not_finite_spoils_the_gradient_of_its_vector(value, place):
    rule = ops.Row(eps_place=place)
    _, dx, _ = assert_same(lambda x, w: ops.row_norm(x, w, None, rule), with_entry(value), WEIGHT)
    assert dx[1].isnan().all()
    assert dx[0].isfinite().all()


CHANNELS = {
    "batch": lambda x, w: ops.batch_norm(x, w)[0],
    "group": lambda x, w: ops.group_norm(x, 2, w),
    "instance": ops.instance_norm,
    "position": ops.layer_norm2d,
    "response": ops.filter_response_norm,
    "swish": lambda x, w: ops.evonorm_s(x, 2, w),
}


@live
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("name", CHANNELS)
def test_channels_whose_squares_overflow_are_zeros_and_pass_no_gradient(name, last):
    x = 1e30 * torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    for tensor in assert_same(CHANNELS[name], x, WEIGHT[:4]):
        assert not tensor.any()


@live
def test_a_single_huge_value_has_a_length():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    x[1, 2] = 1e30
    y, *_ = assert_same(lambda x, w: ops.global_response_norm(x, w), x, WEIGHT[:4])
    assert y.isfinite().all()


@live
def test_a_slope_at_a_huge_value_gets_no_gradient():
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    x[1, 2, 3] = 1e30
    assert_same(lambda x, v: ops.evonorm_s(x, 2, None, None, v), x, WEIGHT[:4])


@pytest.mark.parametrize("name", CHANNELS)
def test_the_formula_rounds_the_gradient_of_half_precision_once(name):
    """Its parts, through the mean and past it, are each larger than what they come to."""
    x = (torch.randn(6, 4, 5, 3, generator=torch.Generator().manual_seed(0)) + 2).bfloat16()
    weight, grads = WEIGHT[:4], []
    for kind in (torch.bfloat16, torch.float64):
        inner = x.to(kind, copy=True).requires_grad_()
        with paths.formula_only():
            CHANNELS[name](inner, weight).backward(x.sin().to(kind) * 256)
        grads.append(inner.grad.double())
    torch.testing.assert_close(*grads, rtol=2.0**-8, atol=2.0**-10)


@pytest.mark.parametrize("path", ["kernel", "formula"])
def test_given_moments_of_a_smaller_type_are_worked_with_in_the_type_of_x(path):
    x = torch.randn(5, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mean, var = torch.linspace(-1, 1, 4), torch.linspace(0.1, 0.7, 4)
    with paths.formula_only() if path == "formula" else paths.watch():
        y = ops.normalize_with(x, mean, var, eps=1e-5)
    want = (x - mean.double().view(4, 1)) / (var.double() + 1e-5).sqrt().view(4, 1)
    torch.testing.assert_close(y, want, rtol=1e-14, atol=1e-14)


@live
@pytest.mark.parametrize("rule", [ops.Row(), ops.Row(statistic="zero-sum"), ops.Row(eps_place="floor")], ids=str)
def test_a_statistic_that_only_a_double_holds_is_the_same_forward_and_backward(rule):
    """4,096 squares of 4e17 are 6.6e38: beyond float32, whose sum the formula takes."""
    y, dx = assert_same(lambda x: ops.row_norm(x, rule=rule), torch.full((2, 4096), 4e17))
    assert not y.any()
    assert not dx.any()


@live
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (3, 4), (1, 4, 9)], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_an_entry_that_is_not_finite_spoils_itself_alone_where_moments_are_given(value, shape, last):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x.view(shape[0], 4, -1)[0, 1, -1] = value
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    mean, var = torch.arange(4.0), torch.arange(4.0) + 1
    _, dx, _ = assert_same(lambda x, w: ops.normalize_with(x, mean, var, w), x, WEIGHT[:4])
    assert dx.isfinite().all()


@live
@pytest.mark.parametrize("moments", [(math.inf, 1.0), (-math.inf, 1.0), (math.nan, 1.0), (0.0, math.inf), (0.0, 0.0)])
def test_given_moments_that_are_not_finite(moments):
    mean, var = torch.zeros(4), torch.ones(4)
    mean[1], var[1] = moments
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    assert_same(lambda x: ops.normalize_with(x, mean, var, WEIGHT[:4], eps=0.0), x)


@live
@pytest.mark.parametrize("name", CHANNELS)
def test_an_infinite_gain_is_that_of_its_channel_alone(name):
    x = 5 + torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([1.0, math.inf, -1.0, 0.5])
    act = lambda x: CHANNELS[name](x, weight)  # noqa: E731
    y, dx = run(act, [x])
    with paths.formula_only():
        other, gradient = run(act, [x])
    torch.testing.assert_close(y, other)
    assert y[:, 1].isinf().all()
    assert torch.equal(dx.isfinite(), gradient.isfinite())


@live
@pytest.mark.parametrize("statistic", ["square", "absolute", "maximum", "zero-sum"])
def test_an_infinite_gain_spoils_the_gradient_of_zeros(statistic):
    weight = torch.full((8,), math.inf)
    _, dx = assert_same(lambda x: ops.row_norm(x, weight, rule=ops.Row(statistic=statistic)), torch.zeros(3, 8))
    assert dx.isnan().all()


@live
@pytest.mark.parametrize("part", [None, 3])
@pytest.mark.parametrize("place", ["outside", "floor"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_row_of_zeros_passes_a_gain_that_is_not_finite_at_its_own_entry_alone(value, place, part):
    """The gradient of a root of 0 is 0, whatever it is multiplied by; torch.norm has it so too."""
    weight = WEIGHT.clone()
    weight[5] = value
    rule = ops.Row(eps=0.5, eps_place=place, part=part)
    _, dx = assert_same(lambda x: ops.row_norm(x, weight, rule=rule), torch.zeros(3, 8))
    torch.testing.assert_close(dx, (weight / 0.5).expand(3, 8), equal_nan=True)


@live
@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_the_gradient_of_a_gain_at_an_infinite_mean_is_infinite(last, value):
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    mean = torch.tensor([0.0, value, 0.0, 0.0])
    *_, dweight = assert_same(lambda x, w: ops.normalize_with(x, mean, torch.ones(4), w), x, WEIGHT[:4])
    assert dweight[1] == -value


@live
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e30, 0.0])
@pytest.mark.parametrize("alpha", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("function", ["erf", "tanh", "isru", "arctan", "expsign", "satursin", "eln"])
def test_bounded_functions_at_their_ends(function, alpha, value):
    if function == "eln":
        act = lambda x, a, w: ops.eln(x, a.abs(), w)  # noqa: E731
    else:
        act = lambda x, a, w: ops.derf(x, a, 0.1 * torch.ones(1), w, function=function)  # noqa: E731
    assert_same(act, with_entry(value), torch.tensor([alpha]), WEIGHT)


@live
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_threshold_under_a_value_that_is_none_is_moved_by_it(value, last):
    x = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    x[0, 1, 2, 3] = value
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    assert_same(lambda x, w, t: ops.filter_response_norm(x, w, None, t), x, WEIGHT[:4], torch.zeros(4))


@live
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_threshold_that_is_not_finite(value, last):
    x = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    tau = torch.tensor([0.1, value, -0.1, 0.0])
    y, *_ = assert_same(lambda x, w, t: ops.filter_response_norm(x, w, None, t), x, WEIGHT[:4], tau)
    assert y[:, 1].isnan().all() == math.isnan(value)


@pytest.mark.parametrize("statistic", ["square", "absolute", "maximum", "zero-sum"])
def test_vectors_of_no_entries_stay_so(statistic):
    x = torch.zeros(4, 0, requires_grad=True)
    y = ops.row_norm(x, rule=ops.Row(statistic=statistic))
    y.sum().backward()
    assert y.shape == x.grad.shape == (4, 0)


@pytest.mark.parametrize("shape", [(4, 3, 5), (4, 3)], ids=["kernel", "formula"])
@pytest.mark.parametrize("given", [(True, False), (False, True), (True, True), (False, False)], ids=str)
def test_online_norm_moves_each_parameter_that_it_has(given, shape):
    """As one with both, of which the other is a gain of 1 or a shift of 0 that nobody learns."""
    x, grad = torch.randn(shape, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 2, math.prod(shape))
    learned = [torch.linspace(0.5, 1.5, 3), torch.linspace(-1, 1, 3)]
    plain = [torch.ones(3), torch.zeros(3)]

    def gradients(parameters):
        state = torch.zeros(3), torch.ones(3), torch.zeros(3), torch.zeros(3)
        leaves = [None if p is None else p.clone().requires_grad_() for p in parameters]
        inner = x.clone().requires_grad_()
        y = ops.online_norm(inner, *leaves, state[:2], state[2:], ops.Control(1e-5, 0.9, 0.9))
        y.backward(grad.view(shape))
        return [y.detach(), inner.grad, *(None if p is None else p.grad for p in leaves)]

    got = gradients([p if there else None for p, there in zip(learned, given, strict=True)])
    want = gradients([p if there else q for p, q, there in zip(learned, plain, given, strict=True)])
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        if index < 2 or given[index - 2]:
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("shape", [(4, 3, 5), (4, 3)], ids=["kernel", "formula"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("held", [torch.float32, torch.float64])
def test_online_norm_after_a_sample_whose_square_overflows(shape, kind, held):
    """As the loop has it in float64: the samples after it are near its mean, and pass their gradients on."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(kind)
    x[1] = 2.0**85
    grad = torch.linspace(-1, 1, x.numel()).to(kind).view(shape)

    def all_of(x, grad, held):
        state = [torch.full((3,), start, dtype=held) for start in (0.0, 1.0, 0.0, 0.0)]
        leaf = x.clone().requires_grad_()
        y = ops.online_norm(leaf, None, None, tuple(state[:2]), tuple(state[2:]), ops.Control(1e-5, 0.9, 0.9))
        y.backward(grad)
        return [y.detach(), leaf.grad, *state]

    with paths.formula_only():
        want = all_of(x.double(), grad.double(), torch.float64)
    assert want[4].isfinite().all()
    want[4:] = [torch.where(b.to(held).isfinite(), b, 0) for b in want[4:]]  # no gradient leaves infinity in the state
    for a, b in zip(all_of(x, grad, held), want, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-5, atol=1e-6 * b.abs().max().clamp(max=1e38).item())


@live
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("held", [torch.float32, torch.float64])
def test_online_norm_outlives_a_sample_whose_own_squares_overflow(held, last):
    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    x[1, 1, 2] = 2.0**100
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    state = (
        torch.zeros(3, dtype=held),
        torch.ones(3, dtype=held),
        torch.zeros(3, dtype=held),
        torch.zeros(3, dtype=held),
    )

    def act(x):
        inner = [s.clone() for s in state]
        return ops.online_norm(x, None, None, tuple(inner[:2]), tuple(inner[2:]), ops.Control(1e-5, 0.9, 0.9))

    for tensor in assert_same(act, x):
        assert tensor.isfinite().all()


def test_online_norm_of_no_samples_moves_nothing():
    state = torch.zeros(3), torch.ones(3), torch.ones(3), torch.ones(3)
    x = torch.zeros(0, 3, requires_grad=True)
    y = ops.online_norm(x, None, torch.zeros(3), state[:2], state[2:], ops.Control(1e-5, 0.9, 0.9))
    y.sum().backward()
    assert y.shape == x.grad.shape == (0, 3)
    assert [tensor.unique().tolist() for tensor in state] == [[0.0], [1.0], [1.0], [1.0]]


@live
def test_what_is_clipped_passes_no_gradient_of_a_gain_that_is_not_a_number():
    weight = torch.full((8,), math.nan)
    act = lambda x, a: ops.derf(x, a, None, weight, function="satursin")  # noqa: E731
    _, dx, dalpha = assert_same(act, torch.full((3, 8), 4.0), torch.ones(1))
    assert not dx.any()
    assert dalpha == 0


@pytest.mark.parametrize("path", ["kernel", "formula"])
def test_a_single_number_of_any_shape_serves_a_vector(path):
    x, one = torch.linspace(-1, 2, 8), torch.full((1, 1), 0.5)
    with paths.formula_only() if path == "formula" else paths.watch():
        for y in (ops.dyt(x, one), ops.derf(x, one, one), ops.eln(x, one)):
            assert y.shape == (8,)
        torch.testing.assert_close(ops.dyt(x, one), torch.tanh(0.5 * x))


@live
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_a_tie_with_the_threshold_passes_half_of_the_gradient_to_each(last):
    x = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0)).round()
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    *_, dtau = assert_same(lambda x, w, t: ops.filter_response_norm(x, w, None, t), x, WEIGHT[:4], torch.zeros(4))
    assert (dtau == ((x < 0) + 0.5 * (x == 0)).sum((0, 2, 3))).all()
