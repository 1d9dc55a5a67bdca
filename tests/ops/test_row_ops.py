"""The row operations against formulas written again here, in float64."""

import math
import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import normkit as nk
from normkit import kernels, ops
from normkit.ops import paths
from normkit.ops.row import Row, add_row_norm, row_norm

RULES = {
    "rms": Row(),
    "layer": Row(center=True, eps=1e-5),
    "outside": Row(eps_place="outside", eps=1e-3),
    "floor": Row(eps_place="floor", eps=1e-3),
    "partial": Row(part=3),
    "partial-outside": Row(part=3, eps_place="outside"),
    "zero-sum": Row(statistic="zero-sum", eps=1e-5),
    "absolute": Row(statistic="absolute", center=True, constant=1.25),
    "absolute-uncentered": Row(statistic="absolute"),
    "maximum": Row(statistic="maximum"),
    "maximum-centered": Row(statistic="maximum", center=True),
    "gemma": Row(offset=1.0),
    "llama": Row(cast="early"),
    "scaled": Row(eps_place="floor", eps=1e-12, scale=3.0),
}
SHAPES = [(1, 1), (1, 7), (5, 123), (3, 1025), (2, 3, 4, 5, 6), (13,), (70, 64), (200, 31)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

# One rounding of the result (half an ulp), and for float32 some more for r and the sums (in blocks, so a few ulp
# whatever the length). Relative to the largest entry: entries near zero carry the error of large ones that cancelled.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11 + 2e-6}

live = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))


def reference_parts(x: Tensor, rule: Row) -> tuple[Tensor, Tensor]:
    """z and r as the docstring of Row says, entry by entry as a mathematician would write them; x is float64."""
    dim = x.shape[-1]
    z = x - x.sum(-1, keepdim=True) / dim if rule.center else x
    part = rule.part or dim
    length = torch.linalg.vector_norm(z[..., :part], dim=-1, keepdim=True)
    if rule.statistic == "absolute":
        return z, 1 / (rule.constant * z.abs().sum(-1, keepdim=True) / dim + rule.eps)
    if rule.statistic == "maximum":
        return z, 1 / (z.abs().amax(-1, keepdim=True) + rule.eps)
    if rule.statistic == "zero-sum":
        return z, (((z**2).sum(-1, keepdim=True) + z.sum(-1, keepdim=True) ** 2) / (dim + 1) + rule.eps) ** -0.5
    if rule.eps_place == "inside":
        return z, ((z[..., :part] ** 2).sum(-1, keepdim=True) / part + rule.eps) ** -0.5
    if rule.eps_place == "outside":
        return z, 1 / (length / math.sqrt(part) + rule.eps)
    return z, 1 / length.clamp(min=rule.eps)


def reference(x: Tensor, weight, bias, rule: Row) -> Tensor:
    z, r = reference_parts(x, rule)
    y = z * r * (rule.scale if weight is None else rule.offset + weight)
    return y if bias is None else y + bias


def parameters(dim: int, affine: str, dtype=torch.float32):
    weight = torch.randn(1 if affine == "single" else dim, dtype=dtype) if affine != "none" else None
    return weight, torch.randn(dim, dtype=dtype) if affine == "both" else None


def assert_near(actual: Tensor, expected: Tensor, tolerance: float, scale: float = 0.0):
    """Relative to the largest entry, or to `scale`: the size of the terms of which the entries are differences."""
    assert actual.shape == expected.shape
    error = (actual.double() - expected).abs().max().item() if actual.numel() else 0.0
    limit = tolerance * max(expected.abs().max().item() if expected.numel() else 0.0, scale)
    assert error <= limit, f"error {error:.2e}, allowed {limit:.2e}"


def leaves(*tensors):
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


def check_against_reference(x, weight, bias, rule):
    x, weight, bias = leaves(x, weight, bias)
    exact = leaves(*(None if t is None else t.double() for t in (x, weight, bias)))
    y, expected = row_norm(x, weight, bias, rule), reference(*exact, rule)
    grad = torch.randn_like(x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    # "early" rounds twice, each time by half an ulp
    tolerance = TOLERANCE[x.dtype] * (2 if rule.cast == "early" else 1)
    assert_near(y, expected, tolerance)
    y.backward(grad)
    expected.backward(grad.double())
    z, r = (t.detach() for t in reference_parts(exact[0], rule))
    gain = rule.scale if weight is None else rule.offset + exact[1].detach()
    over_rows = tuple(range(x.ndim - 1)) if weight is None or weight.numel() == x.shape[-1] else tuple(range(x.ndim))
    g = grad.double()
    terms = [(g * gain * r).abs(), (g * z * r).abs().sum(over_rows), g.abs().sum(over_rows)]
    for got, want, size in zip((x, weight, bias), exact, terms, strict=True):
        if got is not None:
            # about ten roundings of the arithmetic, and one of the result
            # ("early": the formula's n was rounded to x's type before it met the gradient, the kernel's was not)
            coarse = x.dtype if rule.cast == "early" else got.dtype
            rounding = TOLERANCE[coarse] + (4e-6 if x.dtype != torch.float64 else 0)
            assert_near(got.grad, want.grad, 4 * rounding, size.max().item())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_values_and_gradients(name, dtype):
    torch.manual_seed(0)
    for shape in SHAPES:
        if (RULES[name].part or 0) > shape[-1]:
            continue
        for affine in ("none", "gain", "both", "single"):
            x = (torch.randn(shape, dtype=torch.float64) + 0.3).to(dtype)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            check_against_reference(x, *parameters(shape[-1], affine, wide), RULES[name])


@pytest.mark.parametrize("weight_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_mix_of_types_takes_the_fused_path(dtype, weight_dtype):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(6, 40).to(dtype), torch.randn(40).to(weight_dtype), torch.randn(40).to(weight_dtype)
    y = row_norm(x, weight, bias, RULES["layer"])
    assert y.dtype == dtype
    assert_near(y, reference(x.double(), weight.double(), bias.double(), RULES["layer"]), TOLERANCE[dtype])
    if kernels.status().live:
        assert ops.refusal(x, weight, bias) is None


@pytest.mark.parametrize("name", [name for name in RULES if not name.startswith("maximum")])
def test_gradients_of_three_orders(name):
    """The kernel's first derivative by differences; the higher ones against those of the formula written here."""
    torch.manual_seed(0)
    x, weight, bias = leaves(torch.randn(3, 5).double(), torch.randn(5).double(), torch.randn(5).double())
    rule = RULES[name]
    assert torch.autograd.gradcheck(lambda *a: row_norm(*a, rule), (x, weight, bias))
    assert torch.autograd.gradgradcheck(lambda *a: row_norm(*a, rule), (x, weight, bias))

    def third(function):
        derivative = function(x, weight, bias, rule).pow(2).sum()
        for _ in range(3):
            derivative = torch.autograd.grad(derivative, x, create_graph=True)[0].pow(2).sum()
        return derivative

    torch.testing.assert_close(third(row_norm), third(reference), rtol=1e-8, atol=1e-8)


def test_a_gain_that_depends_on_the_input_is_not_counted_twice():
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: row_norm(x, x.mean(0).tanh(), None, Row()), x)


@pytest.mark.parametrize("value", [0.0, 3.0, 1e-20, 6e4, -1.5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_constant_rows_have_no_nan(name, dtype, value):
    x, weight = leaves(torch.full((4, 24), value).to(dtype), torch.ones(24))
    y = row_norm(x, weight, None, RULES[name])
    y.backward(torch.randn_like(y))
    assert y.isfinite().all()
    assert x.grad.float().isfinite().all() or dtype == torch.float16  # g / eps may pass the largest float16
    assert not x.grad.isnan().any()


def test_a_row_of_zeros_with_eps_outside_passes_the_gradient_over_eps():
    x, weight = leaves(torch.zeros(2, 8), torch.randn(8))
    grad = torch.randn(2, 8)
    row_norm(x, weight, None, Row(eps=1e-8, eps_place="outside")).backward(grad)
    torch.testing.assert_close(x.grad, grad * weight / 1e-8)


def test_below_the_floor_no_gradient_goes_through_the_norm():
    x, weight = leaves(torch.full((2, 8), 1e-7), torch.tensor([5.0]))
    grad = torch.randn(2, 8)
    row_norm(x, weight, None, Row(eps=1e-5, eps_place="floor")).backward(grad)
    torch.testing.assert_close(x.grad, grad * weight / 1e-5)


def test_offset_1e4_in_float32():
    x = (torch.randn(16, 768, dtype=torch.float64) + 1e4).float()
    exact = F.layer_norm(x.double(), (768,))
    # the float32 mean of numbers near 1e4 is off by up to half an ulp there, 5e-4
    assert (row_norm(x, rule=RULES["layer"]).double() - exact).abs().max() < 1e-3


def test_eps_of_zero_is_honoured():
    x = torch.tensor([[3e-20, 4e-20]])
    torch.testing.assert_close(row_norm(x, rule=Row(eps=0.0)), torch.tensor([[0.6, 0.8]]) * 2**0.5, rtol=1e-4, atol=0)
    assert row_norm(torch.zeros(1, 4), rule=Row(eps=0.0)).isnan().all()


@pytest.mark.parametrize("name", RULES)
def test_nan_and_infinity_stay_in_their_row(name):
    x = torch.randn(4, 40)
    x[1, 3], x[2, 5] = math.nan, math.inf
    y, formula = row_norm(x, rule=RULES[name]), ops.row.row_formula(x, None, None, RULES[name])
    assert torch.equal(y.isnan(), formula.isnan())
    assert y[0].isfinite().all()
    assert y[3].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["rms", "layer"])
def test_residual(name, dtype):
    torch.manual_seed(0)
    x, residual, weight, bias = leaves(*(torch.randn(shape).to(dtype) for shape in ((9, 70), (9, 70), 70, 70)))
    y, total = add_row_norm(x, residual, weight, bias, RULES[name])
    assert torch.equal(total, x + residual)
    assert torch.equal(y, row_norm(total.detach(), weight, bias, RULES[name]))
    grads = torch.randn_like(y), torch.randn_like(y)
    torch.autograd.backward((y, total), grads)
    exact = leaves(total.double(), weight.double(), bias.double())
    expected = reference(*exact, RULES[name])
    torch.autograd.backward((expected, exact[0] * 1), [g.double() for g in grads])
    assert torch.equal(x.grad, residual.grad)
    for got, want in zip((x, weight, bias), exact, strict=True):
        assert_near(got.grad, want.grad, 4 * TOLERANCE[dtype])


@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)])
def test_residual_of_which_one_result_is_used_or_both(used):
    x, residual = leaves(torch.randn(3, 8).double(), torch.randn(3, 8).double())
    pick = lambda results: tuple(r for r, use in zip(results, used, strict=True) if use)  # noqa: E731
    assert torch.autograd.gradcheck(lambda a, b: pick(add_row_norm(a, b)), (x, residual))
    assert torch.autograd.gradgradcheck(lambda a, b: pick(add_row_norm(a, b)), (x, residual))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_that_is_derived_again_is_the_same(dtype):
    given = leaves(torch.randn(3, 8).to(dtype), torch.randn(3, 8).to(dtype), torch.randn(8).to(dtype))
    results = add_row_norm(*given)
    sent = [torch.randn(3, 8).to(dtype) for _ in results]
    once = torch.autograd.grad(results, given, sent, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(results, given, sent, create_graph=True), once)


LAYOUTS = {
    "transposed batch": lambda: torch.randn(5, 4, 24).transpose(0, 1),
    "channels last": lambda: torch.randn(2, 6, 5, 24).to(memory_format=torch.channels_last),
    "features first": lambda: torch.randn(2, 24, 5, 3).permute(0, 2, 3, 1),
    "slice of rows": lambda: torch.randn(9, 48)[:, :24],
    "every other": lambda: torch.randn(9, 48)[:, ::2],
    "expanded": lambda: torch.randn(1, 24).expand(7, 24),
    "one number": lambda: torch.randn(24, 1).t(),
}


def strides(x):
    """Those that mean anything: an axis of one has any."""
    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x = LAYOUTS[layout]()
    weight = torch.randn(24)
    y = row_norm(x, weight, None, RULES["layer"])
    assert_near(y, reference(x.double(), weight.double(), None, RULES["layer"]), 2e-6)
    assert strides(y) == strides(x * 1)
    a, b = x.clone(memory_format=torch.preserve_format).requires_grad_(), x.double().requires_grad_()
    grad = torch.randn(x.shape)
    row_norm(a, weight, None, RULES["layer"]).backward(grad)
    reference(b, weight.double(), None, RULES["layer"]).backward(grad.double())
    assert_near(a.grad, b.grad, 1e-5)
    total = add_row_norm(x, torch.randn(x.shape), weight)[1]
    assert total.shape == x.shape


def test_several_trailing_axes():
    x, weight, bias = torch.randn(4, 3, 5), torch.randn(3, 5), torch.randn(3, 5)
    torch.testing.assert_close(row_norm(x, weight, bias, RULES["layer"]), F.layer_norm(x, (3, 5), weight, bias))
    torch.testing.assert_close(row_norm(x, None, None, RULES["layer"], shape=(3, 5)), F.layer_norm(x, (3, 5)))
    torch.testing.assert_close(ops.layer_norm(x, (3, 5), weight, bias), F.layer_norm(x, (3, 5), weight, bias))
    torch.testing.assert_close(ops.rms_norm(x, (5,), weight[0], 1e-6), F.rms_norm(x, (5,), weight[0], 1e-6))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8)])
def test_empty_batches(shape):
    x, weight = leaves(torch.zeros(shape), torch.ones(8))
    y = row_norm(x, weight)
    y.sum().backward()
    assert y.shape == x.shape
    assert torch.equal(weight.grad, torch.zeros(8))


@live
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_number_of_threads_changes_no_bit(dtype):
    torch.manual_seed(0)
    data = torch.randn(700, 96).to(dtype), torch.randn(96), torch.randn(96), torch.randn(700, 96).to(dtype)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        x, weight, bias = leaves(*data[:3])
        y = row_norm(x, weight, bias, RULES["layer"])
        y.backward(data[3])
        results.append((y, x.grad, weight.grad, bias.grad))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@live
def test_every_instruction_set(isa):
    for dtype in DTYPES:
        for name in ("rms", "layer", "maximum", "zero-sum"):
            check_against_reference(torch.randn(5, 123).to(dtype), *parameters(123, "both"), RULES[name])


@live
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_of_the_sum_has_the_bits_of_an_addition_of_its_own(isa, name, dtype):
    """Short calls add it apart from the norm: a product that is contracted with it would be rounded once, not twice."""
    x, grad, more = (torch.randn(9, 65, dtype=dtype) for _ in range(3))
    x.requires_grad_()
    weight = torch.randn(65, requires_grad=True)
    y, total = add_row_norm(x, torch.zeros_like(x), weight, None, RULES[name])
    together = torch.autograd.grad((y, total), (x, weight), (grad, more))
    alone = torch.autograd.grad(row_norm(x, weight, None, RULES[name]), (x, weight), grad)
    assert torch.equal(together[0], alone[0] + more)
    assert torch.equal(together[1], alone[1])


@live
def test_half_precision_rounds_as_torch_does():
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        x = bits.view(dtype)[:, None].contiguous()  # every number of the type, as a row of its own
        total = add_row_norm(x, torch.zeros_like(x), rule=Row())[1]
        assert torch.equal(total.nan_to_num(), x.nan_to_num())
        other = x.flip(0).contiguous()
        assert torch.equal(add_row_norm(x, other)[1].nan_to_num(7.0), (x + other).nan_to_num(7.0))


@live
def test_refusals_are_sentences():
    x = torch.randn(3, 8)
    assert ops.refusal(x) is None
    assert ops.refusal(x, torch.nn.Parameter(torch.ones(8))) is None
    assert ops.refusal(x.to("meta")) == "no CPU kernel for a tensor on meta"
    assert ops.refusal(x.to(torch.complex64)) == "no CPU kernel for torch.complex64"
    assert ops.refusal(x[:0]) == "the input is empty"
    assert ops.refusal(x.to_sparse()) == "no CPU kernel for the layout torch.sparse_coo"
    with torch.device("cpu"):
        assert ops.refusal(x) is None
    with torch.autograd.forward_ad.dual_level():
        assert ops.refusal(x) == "forward-mode differentiation is active"
    with FlopCounterMode(display=False):
        assert ops.refusal(x) == "a TorchDispatchMode is active"
    seen = []
    torch.func.vmap(lambda row: seen.append(ops.refusal(row)) or row)(x)
    assert seen == ["a torch.func transform is active"]


@live
def test_there_is_one_thread_pool():
    # in a process of its own: other packages that tests import may bring an OpenMP library along
    code = "import torch; from normkit import kernels, ops\n"
    code += "ops.row_norm(torch.ones(999, 999)); print(kernels.status().pool)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.count("libgomp") == 1


@pytest.mark.parametrize("word, setting", [("off", "off"), ("False", "off"), ("", "on"), ("on", "on"), ("of", "on")])
def test_a_word_for_the_kernels_that_is_none_is_named(word, setting, monkeypatch):
    monkeypatch.setenv("NORMKIT_KERNELS", word)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert kernels.setting() == setting
    wrong = ["NORMKIT_KERNELS is on, off or interpret, not 'of': the kernels stay on"]
    assert [str(warning.message) for warning in said] == (wrong if word == "of" else [])


def test_the_environment_turns_kernels_off():
    code = "from normkit import kernels, ops; import torch\n"
    code += "print(kernels.status().reason, ops.row_norm(torch.ones(2, 3)))"
    environment = {**os.environ, "NORMKIT_KERNELS": "off"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("NORMKIT_KERNELS=off is set tensor([[1.0000")


def test_a_library_that_is_not_there_is_named():
    environment = {**os.environ, "NORMKIT_LIBRARY": "nowhere.so", "NORMKIT_KERNELS": "on"}
    code = "from normkit import kernels; print(kernels.status().reason)"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "NORMKIT_LIBRARY names nowhere.so, which is not there"


def test_a_compiled_graph_is_whole_and_serves_every_batch():
    torch._dynamo.reset()
    weight = torch.randn(12, requires_grad=True)
    function = lambda x: row_norm(x, weight, None, RULES["layer"])  # noqa: E731
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (3, 5, 17):
            x = torch.randn(rows, 12, requires_grad=True)
            torch.testing.assert_close(compiled(x), function(x))
            compiled(x).sum().backward()


def test_export_and_trace():
    class Module(torch.nn.Module):
        def forward(self, x):
            return row_norm(x, None, None, RULES["rms"])

    x = torch.randn(4, 8)
    torch.testing.assert_close(torch.export.export(Module(), (x,)).module()(x), Module()(x))
    torch.testing.assert_close(torch.jit.trace(Module(), x)(x[:2]), Module()(x[:2]))


def test_function_transforms():
    x, tangent = torch.randn(4, 8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)
    function = lambda x: row_norm(x, rule=RULES["layer"])  # noqa: E731
    torch.testing.assert_close(torch.func.vmap(function)(x), function(x))
    leaf = x.clone().requires_grad_()
    function(leaf).pow(3).sum().backward()
    torch.testing.assert_close(torch.func.grad(lambda x: function(x).pow(3).sum())(x), leaf.grad)
    step = 1e-6
    difference = (function(x + step * tangent) - function(x - step * tangent)) / (2 * step)
    torch.testing.assert_close(torch.func.jvp(function, (x,), (tangent,))[1], difference, rtol=1e-6, atol=1e-7)
    jacobian = torch.autograd.functional.jacobian(function, x[0], vectorize=True)
    torch.testing.assert_close(jacobian, torch.func.jacrev(function)(x[0]))


def test_autocast_keeps_the_input_type():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert row_norm(torch.randn(2, 8)).dtype == torch.float32
        assert row_norm(torch.randn(2, 8).bfloat16(), torch.ones(8)).dtype == torch.bfloat16


def test_backward_may_run_twice_and_notices_changes():
    x, weight = leaves(torch.randn(3, 8), torch.randn(8))
    y = row_norm(x, weight)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y.sum(), x, retain_graph=True)[0])
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda x: row_norm(x, torch.ones(7)), ValueError, r"x must end in 7 features.* \(3, 8\)"),
        (lambda x: row_norm(x, None, torch.tensor(2.0)), ValueError, r"bias must have shape \(8\).* \(\)"),
        (lambda x: row_norm(x, None, torch.ones(1)), ValueError, r"bias must have shape \(8\).* \(1,\)"),
        (lambda x: row_norm(x, torch.ones(8), torch.ones(7)), ValueError, r"bias must have shape \(8\).* \(7,\)"),
        (lambda x: row_norm(x, torch.ones(2, 8)), ValueError, r"x must end in axes of sizes \(2, 8\)"),
        (lambda x: row_norm(x.int()), TypeError, "torch.int32"),
        (lambda x: row_norm(x[0, 0]), ValueError, r"x must have an axis to normalize.* \(\)"),
        (lambda x: row_norm(x, rule=Row(part=9)), ValueError, "part must lie within the one normalized axis, not 9"),
        (lambda x: add_row_norm(x, x[:2]), ValueError, r"residual must have shape \(3, 8\).* \(2, 8\)"),
        (lambda x: Row(statistic="median"), ValueError, "median"),
        (lambda x: Row(statistic="zero-sum", center=True), ValueError, "center"),
        (lambda x: Row(part=2, center=True), ValueError, "part=2"),
    ],
)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.randn(3, 8))


@pytest.mark.parametrize(
    "make", [lambda t: t.repeat_interleave(2)[::2], lambda t: t[:1].expand(6)], ids=["strided", "expanded"]
)
def test_a_gain_and_a_shift_with_gaps_are_read_right(make):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    weight, bias = (make(torch.linspace(start, 2.0, 6)).requires_grad_() for start in (0.5, -1.0))
    y, total = ops.add_layer_norm(x, x, weight, bias)
    for got, given in ((ops.layer_norm(x, (6,), weight, bias), x), (y, total)):
        want = torch.nn.functional.layer_norm(given, (6,), weight, bias)
        torch.testing.assert_close(got, want)
        for a, b in zip(*(torch.autograd.grad(z.square().sum(), (weight, bias)) for z in (got, want)), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dim", [2, 8, 15])
@pytest.mark.parametrize("rule", [Row(), Row(eps_place="floor"), Row(center=True)], ids=["rms", "length", "layer"])
def test_a_row_has_the_same_bits_among_any_number_of_rows(dim, rule):
    generator = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(2**16 // dim, dim, generator=generator) for _ in range(2))
    inputs = x.clone().requires_grad_()
    with paths.watch() as taken:
        y = row_norm(inputs, rule=rule)
        total = add_row_norm(x, x, rule=rule)[0]
    assert {path.why for path in taken} == {None} or not kernels.status().live
    (dx,) = torch.autograd.grad(y, inputs, grad)
    for rows in (1, 3, 100):
        few = x[5 : 5 + rows].clone().requires_grad_()
        got = row_norm(few, rule=rule)
        assert torch.equal(got, y[5 : 5 + rows])
        assert torch.equal(torch.autograd.grad(got, few, grad[5 : 5 + rows])[0], dx[5 : 5 + rows])
        assert torch.equal(add_row_norm(few, few, rule=rule)[0], total[5 : 5 + rows])
        with torch.no_grad():
            assert torch.equal(row_norm(few, rule=rule), row_norm(x, rule=rule)[5 : 5 + rows])


@pytest.mark.parametrize("name", ["eps", "constant", "offset", "scale"])
def test_a_number_of_a_rule_that_is_none_is_named(name):
    with pytest.raises(TypeError, match=rf"^Row: {name} must be a number, not 'much'"):
        ops.Row(**{name: "much"})


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_gradient_of_a_channels_last_input_is_channels_last(name, dtype):
    x = torch.randn(2, 8, 4, 16, dtype=dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
    norm = nk.create(name, 16).to(dtype)
    for given in (torch.channels_last, torch.contiguous_format):
        grad = torch.randn(x.shape, dtype=dtype).contiguous(memory_format=given)
        y = norm(x)
        (got,) = torch.autograd.grad(y, x, grad)
        assert got.stride() == y.stride() == x.stride()
        plain = x.detach().contiguous().requires_grad_()
        (want,) = torch.autograd.grad(norm(plain), plain, grad)
        assert torch.equal(got, want)


def test_gradients_of_an_addition_and_a_norm_keep_their_strides():
    x = torch.randn(2, 8, 4, 16, dtype=torch.float64).contiguous(memory_format=torch.channels_last).requires_grad_()
    for residual in (torch.randn_like(x), torch.randn(x.shape, dtype=x.dtype)):
        residual.requires_grad_()
        y, total = ops.add_row_norm(x, residual)
        grads = torch.autograd.grad(y.square().sum() + total.sum(), (x, residual))
        assert [grad.stride() for grad in grads] == [x.stride(), residual.stride()]
    assert torch.autograd.gradgradcheck(lambda x: ops.row_norm(x, None, None), x)
