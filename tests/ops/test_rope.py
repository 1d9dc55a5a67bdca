"""The rotary turn, and norm and turn in one pass, against formulas written again here, in float64."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import normkit as nk
from normkit import kernels, ops
from normkit.ops.paths import formula_only, watch
from normkit.ops.rope import PAIRINGS, Frequencies, norm_rotate, rotate, turns, turns_of
from normkit.ops.row import Row, row_norm
from normkit.transformer.model import Decoder

RULES = {
    "rms": Row(),
    "layer": Row(center=True, eps=1e-5),
    "outside": Row(eps_place="outside", eps=1e-3),
    "floor": Row(eps_place="floor", eps=1e-3),
    "gemma": Row(offset=1.0),
    "llama": Row(cast="early"),
    "scaled": Row(eps_place="floor", eps=1e-12, scale=3.0),
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
WIDTHS = [2, 6, 16, 40, 64, 130, 256]  # whole vectors of every instruction set, parts of one, and both

# One rounding of the result (half an ulp), and for float32 some more for r, the sums and the two products of a turn.
# Relative to the largest entry, since an entry near zero carries the error of two large ones that cancelled.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11 + 2e-6}

live = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))


def normalized(x: Tensor, weight, bias, rule: Row) -> tuple[Tensor, Tensor]:
    """The norm, and r, as the docstring of Row says; x is float64."""
    z = x - x.sum(-1, keepdim=True) / x.shape[-1] if rule.center else x
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    r = {
        "inside": lambda: (length**2 / x.shape[-1] + rule.eps) ** -0.5,
        "outside": lambda: 1 / (length / math.sqrt(x.shape[-1]) + rule.eps),
        "floor": lambda: 1 / length.clamp(min=rule.eps),
    }[rule.eps_place]()
    y = z * r * (rule.scale if weight is None else rule.offset + weight)
    return (y if bias is None else y + bias), r


def turned(y: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Pairs as complex numbers, multiplied by others."""
    half = y.shape[-1] // 2
    order = torch.arange(2 * half).view(2, half) if pairing == "halves" else torch.arange(2 * half).view(half, 2).T
    z = torch.complex(y[..., order[0]], y[..., order[1]]) * torch.complex(cos.double(), sin.double())
    return torch.cat([z.real, z.imag], -1)[..., order.flatten().argsort()]


def reference(x, weight, bias, angles, rule, pairing):
    return turned(normalized(x, weight, bias, rule)[0], *angles, pairing)


def projected(n: int, heads: int, length: int, features: int, dtype=torch.float32) -> Tensor:
    """Heads as a projection gives them: features, heads, positions, samples in memory."""
    return (torch.randn(n, length, heads, features, dtype=torch.float64) + 0.3).to(dtype).transpose(1, 2)


def angles_for(x: Tensor):
    return turns_of(x, 50.0)


def leaves(*tensors):
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


def assert_near(actual: Tensor, expected: Tensor, tolerance: float, scale: float = 0.0):
    """Relative to the largest entry, or to ``scale``: the size of the terms of which the entries are differences."""
    assert actual.shape == expected.shape
    error, limit = (actual.double() - expected).abs().max().item(), tolerance * max(expected.abs().max().item(), scale)
    assert error <= limit, f"error {error:.2e}, allowed {limit:.2e}"


def parameters(width: int, affine: str, dtype=torch.float32):
    weight = torch.randn(1 if affine == "single" else width, dtype=dtype) if affine != "none" else None
    return weight, torch.randn(width, dtype=dtype) if affine == "both" else None


def check_against_reference(x, weight, bias, rule, pairing, angles=None):
    angles = angles_for(x) if angles is None else angles
    x, weight, bias = leaves(x, weight, bias)
    exact = leaves(*(None if t is None else t.double() for t in (x, weight, bias)))
    y, expected = (
        norm_rotate(x, weight, bias, angles, rule=rule, pairing=pairing),
        reference(*exact, angles, rule, pairing),
    )
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    # "early" rounds twice; the turn adds two rounded numbers, up to sqrt(2) times as large together
    assert_near(y, expected, TOLERANCE[x.dtype] * (3 if rule.cast == "early" else 1))
    grad = torch.randn_like(x)
    y.backward(grad)
    expected.backward(grad.double())
    with torch.no_grad():
        n, r = normalized(exact[0], None, None, Row(center=rule.center, eps=rule.eps, eps_place=rule.eps_place))
        gain = rule.scale if weight is None else rule.offset + exact[1]
        back = turned(grad.double(), angles[0], -angles[1], pairing)
        rows = tuple(range(x.ndim - 1)) if weight is None or weight.numel() == x.shape[-1] else tuple(range(x.ndim))
        terms = [(back * gain * r).abs(), (back * n).abs().sum(rows), back.abs().sum(rows)]
    for got, want, size in zip((x, weight, bias), exact, terms, strict=True):
        if got is not None:
            # about ten roundings of the arithmetic, and one of the result
            # ("early": the kernel's n was not rounded to x's type before it met the gradient)
            coarse = x.dtype if rule.cast == "early" else got.dtype
            rounding = TOLERANCE[coarse] + (4e-6 if x.dtype != torch.float64 else 0)
            assert_near(got.grad, want.grad, 4 * rounding, size.max().item())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_values_and_gradients(pairing, name, dtype):
    torch.manual_seed(0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for width, affine in itertools.product(WIDTHS, ("none", "gain", "both", "single")):
        x = projected(2, 3, 7, width, dtype)
        check_against_reference(x, *parameters(width, affine, wide), RULES[name], pairing)


@live
def test_every_instruction_set(isa):
    for dtype, pairing, width in itertools.product(DTYPES, PAIRINGS, (6, 40, 64)):
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        for name in ("layer", "llama", "floor"):
            x = projected(2, 3, 7, width, dtype)
            check_against_reference(x, *parameters(width, "both", wide), RULES[name], pairing)


@pytest.mark.parametrize("weight_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_mix_of_types(dtype, weight_dtype):
    x, (weight, bias) = projected(2, 3, 5, 40, dtype), parameters(40, "both", weight_dtype)
    y = norm_rotate(x, weight, bias, angles_for(x), rule=RULES["layer"])
    assert y.dtype == dtype
    assert_near(
        y,
        reference(x.double(), weight.double(), bias.double(), angles_for(x), RULES["layer"], "halves"),
        3 * TOLERANCE[dtype],
    )


LAYOUTS = {
    "as projected": lambda: projected(2, 3, 5, 24),
    "packed": lambda: torch.randn(2, 3, 5, 24),
    "a third of a joint projection": lambda: torch.randn(2, 5, 3, 72)[..., 24:48].transpose(1, 2),
    "one vector": lambda: torch.randn(24),
    "one head": lambda: torch.randn(5, 24),
    "no samples": lambda: torch.randn(3, 5, 24),
    "five axes": lambda: torch.randn(2, 5, 2, 3, 24).permute(0, 2, 3, 1, 4),
    "features first": lambda: torch.randn(2, 24, 3, 5).permute(0, 2, 3, 1),
    "every other feature": lambda: torch.randn(2, 3, 5, 48)[..., ::2],
    "one head for all": lambda: torch.randn(2, 1, 5, 24).expand(2, 3, 5, 24),
}


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, pairing):
    torch.manual_seed(0)
    base = LAYOUTS[layout]()
    angles = angles_for(base if base.ndim > 1 else base[None])
    angles = angles if base.ndim > 1 else (angles[0][0], angles[1][0])
    weight, bias = parameters(24, "both")
    grad = torch.randn(base.shape)
    wanted, exact = [], base.double().requires_grad_()
    for y in (
        reference(exact, weight.double(), bias.double(), angles, RULES["layer"], pairing),
        turned(exact, *angles, pairing),
    ):
        wanted.append((y, *torch.autograd.grad(y, exact, grad.double())))
    x = base.requires_grad_()
    for y, (value, slope) in zip(
        (norm_rotate(x, weight, bias, angles, rule=RULES["layer"], pairing=pairing), rotate(x, angles, pairing)),
        wanted,
        strict=True,
    ):
        assert_near(y, value, 2e-6)
        assert_near(torch.autograd.grad(y, x, grad)[0], slope, 1e-5)


@live
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_result_and_its_gradient_lie_as_the_input(pairing):
    x = projected(2, 3, 5, 24).requires_grad_()
    for y in (
        rotate(x, angles_for(x), pairing),
        norm_rotate(x, None, None, angles_for(x), rule=Row(), pairing=pairing),
    ):
        assert y.stride() == x.stride()
        assert (
            torch.autograd.grad(y, x, torch.ones(2, 3, 5, 24).transpose(1, 2).contiguous().transpose(1, 2))[0].stride()
            == x.stride()
        )


@pytest.mark.parametrize("shape", [(2, 1, 7), (2, 3, 7), (1, 3, 7), (7,), (2, 1, 1), ()])
def test_every_sample_and_head_may_have_its_angles(shape):
    x, positions = projected(2, 3, 7, 12), torch.randint(0, 90, shape)
    angles = turns(positions, 12, 50.0)
    check_against_reference(x, *parameters(12, "both"), RULES["rms"], "halves", angles)
    assert_near(rotate(x, angles, "pairs"), turned(x.double(), *angles, "pairs"), 1e-6)
    with formula_only():
        formula = rotate(x, angles, "pairs")
    torch.testing.assert_close(rotate(x, angles, "pairs"), formula)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("name", RULES)
def test_gradients_of_three_orders(name, pairing):
    """The kernel's first derivative by differences; the higher ones against those of the formula written here."""
    torch.manual_seed(0)
    x, weight, bias = leaves(torch.randn(2, 3, 6).double(), torch.randn(6).double(), torch.randn(6).double())
    rule, angles = RULES[name], angles_for(x)
    call = lambda *a: norm_rotate(*a, angles, rule=rule, pairing=pairing)  # noqa: E731
    assert torch.autograd.gradcheck(call, (x, weight, bias))
    assert torch.autograd.gradgradcheck(call, (x, weight, bias))

    def third(function):
        derivative = function(x, weight, bias).pow(2).sum()
        for _ in range(3):
            derivative = torch.autograd.grad(derivative, x, create_graph=True)[0].pow(2).sum()
        return derivative

    torch.testing.assert_close(
        third(call), third(lambda *a: reference(*a, angles, rule, pairing)), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_batch_of_gradients_is_that_of_each(pairing):
    x, sent = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 2, 3, 4)
    y = rotate(x, angles_for(x), pairing)
    (together,) = torch.autograd.grad(y, x, sent, is_grads_batched=True, retain_graph=True)
    for one, own in zip(sent, together, strict=True):
        torch.testing.assert_close(torch.autograd.grad(y, x, one, retain_graph=True)[0], own)


def test_angles_of_a_single_pair_may_lie_anywhere():
    """To PyTorch one number is contiguous whatever its strides; the kernel walks both angles by the same."""
    x = torch.randn(7, 3, 1, 12, 2, generator=torch.Generator().manual_seed(0))
    cos, sin = torch.tensor([0.6, 9.0])[::2].view(1, 1, 1), torch.tensor([9.0, 0.8])[1:].view(1, 1, 1)
    cos = cos.as_strided((1, 1, 1), (2, 2, 2))
    want = torch.stack([0.6 * x[..., 0] - 0.8 * x[..., 1], 0.6 * x[..., 1] + 0.8 * x[..., 0]], -1)
    torch.testing.assert_close(rotate(x, (cos, sin)), want)


def test_gradients_that_are_not_wanted_are_not_made():
    x, (weight, bias) = projected(1, 2, 3, 8), parameters(8, "both")
    for wanted in (x, weight, bias):
        wanted.requires_grad_()
        norm_rotate(x, weight, bias, angles_for(x), rule=Row()).sum().backward()
        assert [t.grad is None for t in (x, weight, bias)] == [t is not wanted for t in (x, weight, bias)]
        wanted.grad = None
        wanted.requires_grad_(False)


def test_a_gain_that_depends_on_the_input_is_not_counted_twice():
    x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    angles = angles_for(x)
    assert torch.autograd.gradgradcheck(lambda x: norm_rotate(x, x.mean((0, 1)).tanh(), None, angles, rule=Row()), x)


def test_angles_of_norm_and_turn_can_be_learned():
    x, (cos, sin) = torch.randn(2, 5, 6).double(), angles_for(torch.randn(5, 6).double())
    inputs = leaves(x, cos, sin)
    assert torch.autograd.gradcheck(lambda x, c, s: norm_rotate(x, None, None, (c, s), rule=Row()), inputs)


@pytest.mark.parametrize("value", [0.0, 3.0, 1e-20, 6e4, -1.5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_constant_rows_have_no_nan(name, dtype, value):
    x, weight = leaves(torch.full((2, 3, 24), value).to(dtype), torch.ones(24))
    y = norm_rotate(x, weight, None, angles_for(x), rule=RULES[name])
    y.backward(torch.randn_like(y))
    assert y.isfinite().all()
    assert not x.grad.isnan().any()
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("name", RULES)
def test_nan_and_infinity_stay_in_their_row(name, pairing):
    x = torch.randn(2, 2, 40)
    x[0, 1, 3], x[1, 0, 5] = math.nan, math.inf
    y = norm_rotate(x, None, None, angles_for(x), rule=RULES[name], pairing=pairing)
    with formula_only():
        assert torch.equal(
            y.isnan(), norm_rotate(x, None, None, angles_for(x), rule=RULES[name], pairing=pairing).isnan()
        )
    assert y[0, 0].isfinite().all()
    assert y[1, 1].isfinite().all()
    plain = rotate(x, angles_for(x), pairing)
    assert plain.isfinite().all(-1).tolist() == [[True, False], [False, True]]


@live
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_number_of_threads_changes_no_bit(pairing, dtype):
    torch.manual_seed(0)
    data = projected(3, 5, 47, 96, dtype), *parameters(96, "both"), projected(3, 5, 47, 96, dtype)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        x, weight, bias = leaves(*data[:3])
        y = norm_rotate(x, weight, bias, angles_for(x), rule=RULES["layer"], pairing=pairing)
        y.backward(data[3])
        results.append((y, x.grad, weight.grad, bias.grad, rotate(x, angles_for(x), pairing)))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def test_other_statistics_and_long_heads_take_the_formula():
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    for rule in (Row(statistic="maximum"), Row(part=3), Row(statistic="absolute", center=True)):
        y = norm_rotate(x, None, None, angles_for(x), rule=rule)
        torch.testing.assert_close(y, turned(row_norm(x, rule=rule), *angles_for(x), "halves"))
    check_against_reference(torch.randn(2, 3, 514), *parameters(514, "both"), Row(), "pairs")


@pytest.mark.parametrize("shape", [(0, 3, 5, 8), (2, 3, 0, 8)])
def test_empty_inputs(shape):
    x, weight = leaves(torch.zeros(shape), torch.ones(8))
    for y in (norm_rotate(x, weight, None, angles_for(x), rule=Row()), rotate(x, angles_for(x))):
        assert y.shape == shape
        y.sum().backward()
    assert torch.equal(weight.grad, torch.zeros(8))


def test_the_turn_keeps_lengths_and_turns_back():
    x = projected(2, 3, 9, 32, torch.float64)
    cos, sin = angles_for(x)
    y = rotate(x, (cos, sin), "pairs")
    torch.testing.assert_close(y.square().sum(-1), x.square().sum(-1))
    torch.testing.assert_close(rotate(y, (cos, -sin), "pairs"), x)
    assert not torch.allclose(y[..., 1:, :], x[..., 1:, :])


@live
def test_the_kernel_runs():
    x, weight = projected(2, 3, 5, 16).requires_grad_(), torch.ones(16, requires_grad=True)
    angles = angles_for(x)
    for call in (
        lambda: norm_rotate(x, weight, None, angles, rule=Row()).sum().backward(),
        lambda: rotate(x, angles, "pairs").sum().backward(),
        lambda: nk.create("qkv-norm", 16, heads=3, rope_base=50.0)(x, x, x).sum().backward(),
    ):
        with watch() as taken:
            call()
        assert {path.by for path in taken} == {f"C kernel, {kernels.status().isa}"}
        with formula_only(), watch() as taken:
            call()
        assert {path.by for path in taken} == {"formula"}


def test_transforms():
    x, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in ((4, 3, 5, 6), 6, 6))
    angles = angles_for(x)
    call = lambda x: norm_rotate(x, weight, bias, angles, rule=RULES["layer"], pairing="pairs")  # noqa: E731
    torch.testing.assert_close(torch.func.vmap(call)(x), call(x))
    slope = torch.func.grad(lambda x: call(x).pow(2).sum())(x)
    inputs = x.clone().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(call(inputs).pow(2).sum(), inputs)[0])
    _, moved = torch.func.jvp(call, (x,), (x.cos(),))
    torch.testing.assert_close((moved * slope).sum(), (torch.func.vjp(call, x)[1](slope)[0] * x.cos()).sum())


def test_a_compiled_graph_is_whole_and_serves_every_length():
    torch._dynamo.reset()
    weight = torch.randn(12, requires_grad=True)

    def call(x):
        return rotate(norm_rotate(x, weight, None, turns_of(x), rule=RULES["layer"]), turns_of(x), "pairs")

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for length in (5, 7):
            x = projected(2, 3, length, 12)
            torch.testing.assert_close(compiled(x), call(x))


def qk_decoder(**options):
    torch.manual_seed(0)
    return Decoder(vocab=11, dim=16, depth=1, heads=2, query_key_norm="head", norm="rmsnorm", **options)


@live
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_a_decoder_normalizes_and_turns_in_one_pass(norm):
    torch.manual_seed(0)
    model = Decoder(vocab=11, dim=16, depth=1, heads=2, query_key_norm="head", norm=norm)
    with watch() as taken:
        y = model(torch.arange(10)[None])
    assert [path.why for path in taken if path.op == "norm_rotate"] == [None, None]
    with formula_only():
        torch.testing.assert_close(y, model(torch.arange(10)[None]))


def test_a_hook_on_a_query_norm_sees_it():
    model, tokens, seen = qk_decoder(rotary="pairs"), torch.arange(10)[None], []
    plain = model(tokens)
    attention = model.layer(0).attention
    with attention.query_norm.register_forward_hook(lambda module, inputs, output: seen.append(output.shape)):
        torch.testing.assert_close(model(tokens), plain)
    assert seen == [(1, 10, 2, 8)]
    with attention.query_norm.register_full_backward_hook(lambda *a: seen.append("backward")):
        model(tokens).sum().backward()
    assert seen[1:] == ["backward"]


class Doubled(torch.nn.Module):
    """A norm of a user's own."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x):
        return x * 2


def test_any_module_may_normalize_before_the_turn():
    torch.manual_seed(0)
    own = Decoder(vocab=11, dim=16, depth=1, heads=2, query_key_norm="head", norm=Doubled)
    torch.manual_seed(0)
    none = Decoder(vocab=11, dim=16, depth=1, heads=2, norm=Doubled)
    with torch.no_grad():
        none.layer(0).attention.query.weight.mul_(2)
        none.layer(0).attention.key.weight.mul_(2)
    torch.testing.assert_close(own(torch.arange(10)[None]), none(torch.arange(10)[None]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, a: rotate(x, a, "thirds"), ValueError, "rotate: pairing must be one of 'halves', 'pairs'"),
        (lambda x, a: rotate(x.long(), a), TypeError, "rotate: x must be a floating-point tensor, not torch.int64"),
        (lambda x, a: rotate(x.to(torch.float8_e4m3fn), a), TypeError, "x must be .* of 16 bits or more, not .*float8"),
        (lambda x, a: rotate(x[..., :5], a), ValueError, "x must end in an even number of features"),
        (lambda x, a: rotate(x[..., :4], a), ValueError, r"angles of shape \(7, 3\) do not broadcast to \(2, 7, 2\)"),
        (lambda x, a: rotate(x[:, :5], a), ValueError, r"angles of shape \(7, 3\) do not broadcast to \(2, 5, 3\)"),
        (lambda x, a: rotate(x[0, 0], a), ValueError, r"angles of shape \(7, 3\) do not broadcast to \(3,\)"),
        (
            lambda x, a: norm_rotate(x, x[0, 0, :4], None, a, rule=Row()),
            ValueError,
            r"norm_rotate: weight must .* \(4,\)",
        ),
        (
            lambda x, a: norm_rotate(x, None, x[0, 0, :4], a, rule=Row()),
            ValueError,
            r"norm_rotate: bias must .* \(4,\)",
        ),
        (lambda x, a: turns(torch.arange(3), 5), ValueError, "turns: head_dim must be even"),
        (lambda x, a: nk.RMSNorm(8).norm_rotate(x, a), ValueError, "RMSNorm: x must end in 8 features"),
    ],
)
def test_mistakes(call, error, message):
    x = torch.randn(2, 7, 6)
    with pytest.raises(error, match=message):
        call(x, angles_for(x))


def test_the_ops_are_public():
    assert ops.norm_rotate is norm_rotate
    assert ops.rotate is rotate


def test_angles_lie_where_the_positions_do():
    for x in Frequencies((1.0, 0.5)).turns(torch.arange(3, device="meta"), 6):
        assert (x.device.type, x.shape) == ("meta", (3, 3))
