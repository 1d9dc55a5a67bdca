"""DyT, Derf and its kin, and ELN against formulas written again here, in float64."""

import math

import pytest
import torch
from torch import Tensor

from normkit import kernels, ops

FUNCTIONS = {
    "erf": torch.erf,
    "tanh": torch.tanh,
    "isru": lambda u: u * (1 + u**2) ** -0.5,
    "arctan": lambda u: torch.atan(u) * 2 / math.pi,
    "expsign": lambda u: torch.sign(u) * (1 - torch.exp(-abs(u))),
    "satursin": lambda u: torch.sin(torch.clamp(u, -math.pi / 2, math.pi / 2)),
}
NAMES = ["dyt", "eln", *(f"derf-{name}" for name in FUNCTIONS)]
SHAPES = [((1, 1), True), ((5, 123), True), ((2, 3, 1025), True), ((13,), True), ((300, 64), True)]
SHAPES += [((3, 5), False), ((2, 6, 5, 7), False), ((3, 5, 40, 40), False), ((4, 3, 17), False)]

# Half an ulp of the result, and in float32 about six ulps: the function (2), its argument, gain, bias.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 8e-7, torch.bfloat16: 2**-8, torch.float16: 2**-11 + 1e-6}
DTYPES = list(TOLERANCE)

live = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))


def call(name, x, alpha, shift, weight, bias, channels_last=True):
    if name == "dyt":
        return ops.dyt(x, alpha, weight, bias, channels_last=channels_last)
    if name == "eln":
        return ops.eln(x, alpha, weight, bias, channels_last=channels_last)
    return ops.derf(x, alpha, shift, weight, bias, function=name[5:], channels_last=channels_last)


def core(name, x, alpha, shift, dim) -> Tensor:
    if name == "eln":
        return dim**0.5 * x * (alpha + x**2) ** -0.5
    return FUNCTIONS["tanh" if name == "dyt" else name[5:]](alpha * x + (0 if shift is None else shift))


def reference(name, x, alpha, shift, weight, bias, channels_last=True) -> Tensor:
    axis = x.ndim - 1 if channels_last else 1
    shape = [x.shape[axis] if i == axis else 1 for i in range(x.ndim)]
    y = core(name, x, alpha, shift, x.shape[axis])
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def leaves(*tensors):
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


def arguments(name, shape, channels_last, dtype, affine, wide=torch.float32):
    dim = shape[-1] if channels_last else shape[1]
    x = (2 * torch.randn(shape)).to(dtype)
    alpha = torch.tensor([float(dim) if name == "eln" else 0.7], dtype=wide)
    shift = torch.tensor([0.1], dtype=wide) if name.startswith("derf") else None
    weight = torch.randn(dim, dtype=wide) if affine != "none" else None
    return x, alpha, shift, weight, torch.randn(dim, dtype=wide) if affine == "both" else None


def assert_near(actual, expected, tolerance, scale=0.0):
    assert actual.shape == expected.shape
    error = (actual.double() - expected).abs().max().item()
    limit = tolerance * max(expected.abs().max().item(), scale)
    assert error <= limit, f"error {error:.2e}, allowed {limit:.2e}"


def check(name, given, channels_last):
    given = leaves(*given)
    exact = leaves(*(None if t is None else t.double() for t in given))
    y, expected = call(name, *given, channels_last), reference(name, *exact, channels_last)
    grad = torch.randn_like(y)
    dtype = given[0].dtype
    assert (y.dtype, y.shape) == (dtype, given[0].shape)
    # the error of y is relative to what is added up in it, gain and bias
    scale = exact[0].shape[-1] ** 0.5 if name == "eln" else 1
    terms = scale * sum(t.abs().max().item() for t in exact[3:] if t is not None)
    assert_near(y, expected, TOLERANCE[dtype], terms)
    y.backward(grad)
    expected.backward(grad.double())
    # a parameter's gradient is a sum of many terms of both signs: its error is relative to the sum of the magnitudes
    whole = (grad.double() * exact[0].detach()).abs().sum().item() if dtype != torch.float64 else 0.0
    for index, (got, want) in enumerate(zip(given, exact, strict=True)):
        if got is not None:
            assert_near(got.grad, want.grad, 8 * TOLERANCE[got.dtype], 1e-1 * whole if index else 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, dtype):
    torch.manual_seed(0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for shape, channels_last in SHAPES:
        for affine in ("none", "gain", "both"):
            check(name, arguments(name, shape, channels_last, dtype, affine, wide), channels_last)


@live
@pytest.mark.parametrize("name", NAMES)
def test_the_functions_err_by_few_units_in_the_last_place(name):
    """Ulps of float32 against float64, from the smallest numbers to the largest, at alpha = 1 and no shift."""
    wide = torch.logspace(-30, 10, 200_000, dtype=torch.float64).float()
    magnitudes = torch.cat([wide, torch.linspace(0.01, 12, 200_000)])
    x = torch.cat([magnitudes, -magnitudes])[:, None]
    beta_or_alpha = torch.ones(1)
    y = call(name, x, beta_or_alpha, None, None, None)[:, 0]
    exact = core(name, x.double(), 1.0, None, 1)[:, 0]
    if name == "derf-expsign":  # the reference above cancels for small u
        exact = x[:, 0].double().sign() * -torch.expm1(-x[:, 0].double().abs())
    ulp = torch.nextafter(exact.float().abs(), torch.tensor(math.inf)) - exact.float().abs()
    assert ((y.double() - exact).abs() / ulp.double()).max() < 3.0
    assert torch.equal(y[: len(magnitudes)], -y[len(magnitudes) :])


@pytest.mark.parametrize("name", NAMES)
def test_limits_nan_and_zero(name):
    x = torch.tensor([[math.inf, -math.inf, math.nan, 0.0, -0.0]], requires_grad=True)
    y = call(name, x, torch.tensor([1.0]), None, None, None)
    expected = core(name, x.detach().double(), 1.0, None, 5).float()
    if name in ("derf-isru", "eln"):  # inf / inf in the formula, while the reference here has inf * 0
        expected[0, :2] = math.nan
    torch.testing.assert_close(y.detach(), expected, equal_nan=True)
    y.backward(torch.ones_like(y))
    slopes = {"derf-expsign": 0.0, "eln": 5**0.5, "derf-erf": 2 / math.pi**0.5, "derf-arctan": 2 / math.pi}
    torch.testing.assert_close(x.grad[0, 3].item(), slopes.get(name, 1.0))


def test_the_slope_of_the_saturated_sine_is_that_of_a_clip():
    x = torch.tensor([-3.0, -1.0, 1.0, 3.0], requires_grad=True)
    ops.derf(x, torch.ones(1), function="satursin").sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.0, math.cos(1), math.cos(1), 0.0]))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_three_orders(name):
    """In float32 the kernel's first derivative and the formula's higher ones, against float64 throughout."""
    torch.manual_seed(0)
    given = leaves(*arguments(name, (3, 5), True, torch.float32, "both"))
    exact = leaves(*(None if t is None else t.double() for t in given))
    function = lambda x, w, b: call(name, x, exact[1], exact[2], w, b)  # noqa: E731
    assert torch.autograd.gradcheck(function, (exact[0], *exact[3:]))
    assert torch.autograd.gradgradcheck(function, (exact[0], *exact[3:]))

    def third(function, arguments):
        value = function(name, *arguments).pow(2).sum()
        for _ in range(2):
            value = torch.autograd.grad(value, arguments[0], create_graph=True)[0].pow(2).sum()
        return torch.autograd.grad(value, arguments[0])[0]

    got, want = third(call, given).double(), third(reference, exact)
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()  # three orders of a float32 graph


LAYOUTS = {
    "channels last, features second": (lambda: torch.randn(2, 6, 5, 7).to(memory_format=torch.channels_last), False),
    "channels last, features last": (lambda: torch.randn(2, 7, 5, 6).to(memory_format=torch.channels_last), True),
    "transposed batch": (lambda: torch.randn(5, 4, 6).transpose(0, 1), True),
    "slice": (lambda: torch.randn(9, 12)[:, ::2], True),
    "expanded": (lambda: torch.randn(1, 6).expand(7, 6), True),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, name):
    make, channels_last = LAYOUTS[layout]
    x = make()
    _, alpha, shift, weight, bias = arguments(name, (1, 6), True, torch.float32, "both")
    y = call(name, x, alpha, shift, weight, bias, channels_last)
    wide = [None if t is None else t.double() for t in (x, alpha, shift, weight, bias)]
    assert_near(y, reference(name, *wide, channels_last), 2e-6, 1.0)
    assert y.stride() == (x * 1).stride()
    a, b = x.clone(memory_format=torch.preserve_format).requires_grad_(), x.double().requires_grad_()
    grad = torch.randn(x.shape)
    call(name, a, alpha, shift, weight, bias, channels_last).backward(grad)
    reference(name, b, *wide[1:], channels_last).backward(grad.double())
    assert_near(a.grad, b.grad, 4e-6)


def test_an_empty_batch():
    given = leaves(*arguments("dyt", (0, 8), True, torch.float32, "both"))
    call("dyt", *given).sum().backward()
    assert all(torch.equal(t.grad, torch.zeros_like(t)) for t in given if t is not None)


@live
@pytest.mark.parametrize("channels_last", [True, False])
def test_the_number_of_threads_changes_no_bit(channels_last):
    torch.manual_seed(0)
    shape = (700, 96) if channels_last else (8, 96, 9, 10)
    data = arguments("derf-erf", shape, channels_last, torch.bfloat16, "both")
    grad = torch.randn(shape).bfloat16()
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        given = leaves(*data)
        y = call("derf-erf", *given, channels_last)
        y.backward(grad)
        results.append([y, *(t.grad for t in given)])
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@live
@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_set(name, isa):
    check(name, arguments(name, (5, 123), True, torch.float32, "both"), True)
    check(name, arguments(name, (5, 123), True, torch.float16, "both"), True)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_exported_mapped(name):
    torch._dynamo.reset()
    given = arguments(name, (4, 8), True, torch.float32, "both")
    function = lambda x: call(name, x, *given[1:])  # noqa: E731
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), function(x))
    x = given[0]
    torch.testing.assert_close(torch.func.vmap(function)(x), function(x))
    leaf = x.clone().requires_grad_()
    function(leaf).pow(3).sum().backward()
    torch.testing.assert_close(torch.func.grad(lambda x: function(x).pow(3).sum())(x), leaf.grad, rtol=1e-5, atol=1e-5)
    assert torch.func.jvp(function, (x,), (x,))[1].shape == x.shape


@pytest.mark.parametrize(
    "act, error, words",
    [
        (lambda x: ops.dyt(x, torch.ones(1), torch.ones(7)), ValueError, r"x must end in 7 features, .* \(3, 8\)"),
        (lambda x: ops.dyt(x, torch.ones(2)), ValueError, r"alpha .* must be a single number, .* \(2,\)"),
        (lambda x: ops.dyt(x[0], torch.ones(1), channels_last=False), ValueError, "at least two axes"),
        (lambda x: ops.dyt(x.int(), torch.ones(1)), TypeError, "torch.int32"),
        (lambda x: ops.derf(x, torch.ones(1), function="relu"), ValueError, "relu"),
    ],
)
def test_mistakes_are_named(act, error, words):
    with pytest.raises(error, match=words):
        act(torch.randn(3, 8))


def test_a_gain_and_a_shift_with_gaps_are_read_right():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.linspace(0.5, 2.0, 12)[::2], torch.linspace(-1.0, 1.0, 12)[1::2]
    torch.testing.assert_close(ops.dyt(x, torch.tensor([0.5]), weight, bias), torch.tanh(0.5 * x) * weight + bias)


@live
@pytest.mark.parametrize("weighted", [True, False])
def test_a_beta_of_zero_leaves_small_numbers_their_signs_and_no_slope(weighted):
    x = torch.tensor([[1e-12, -1e-13, 1e-16, -2.0], [3.0, 1e-9, -1e-15, 1.0]], requires_grad=True)
    beta, weight = torch.zeros(1, requires_grad=True), torch.full((4,), 50.0)
    y = ops.eln(x, beta, weight if weighted else None)
    y.backward(torch.full_like(y, 100.0))
    assert torch.equal(x.grad, torch.zeros_like(x))
    torch.testing.assert_close(y, (100.0 if weighted else 2.0) * x.sign())
    slope = -0.5 * (100.0 if weighted else 2.0) * 100.0 * x.detach().double().sign() / x.detach().double().square()
    torch.testing.assert_close(beta.grad.double(), slope.sum().reshape(1), rtol=1e-5, atol=0)
