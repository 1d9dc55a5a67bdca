"""The GPU's kernels for rows, run by Triton's interpreter: every rule and every edge, and mistakes that are caught."""

import importlib.util
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from normkit import ops
from normkit.kernels import cuda
from normkit.ops import paths
from place import DEVICE, KERNEL, ON_GPU, forget_plans, interpreter_only, kernels

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


@pytest.fixture(autouse=True)
def by_kernels():
    with kernels():
        yield


@pytest.fixture(autouse=True)
def by_several_programs(monkeypatch):
    """Few short rows are one program's; here several keep sums of them."""
    from normkit.kernels.cuda import settings

    monkeypatch.setattr(settings, "SUMMED", 256)
    forget_plans()
    yield
    forget_plans()


@pytest.fixture
def walked(monkeypatch):
    """Rows of more than 16 entries are walked along, eight at a time."""
    from normkit.kernels.cuda import settings

    monkeypatch.setattr(settings, "LONGEST_FORWARD", 16)
    monkeypatch.setattr(settings, "LONGEST_BACKWARD", 16)
    monkeypatch.setattr(settings, "STEP", 8)
    forget_plans()
    yield
    forget_plans()


RULES = {
    "layer": ops.Row(center=True, eps=1e-5),
    "rms": ops.Row(),
    "outside": ops.Row(eps_place="outside", eps=0.1),
    "length": ops.Row(eps_place="floor", eps=1e-5),
    "part": ops.Row(part=3),
    "absolute": ops.Row(center=True, statistic="absolute", eps=1e-5),
    "maximum": ops.Row(statistic="maximum", eps=1e-5),
    "zero-sum": ops.Row(statistic="zero-sum", eps=1e-5),
    "gemma": ops.Row(offset=1.0),
    "llama": ops.Row(cast="early"),
}


def numbers(*shape, offset=0.0):
    return (torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + offset).to(DEVICE)


def by_kernel(act, *tensors, grad=None):
    """Output and gradients, none of which any formula has made."""
    with paths.watch() as taken:
        found = with_gradients(act, tensors, grad)
    assert {path.by for path in taken} == {KERNEL}, [str(path) for path in taken]
    assert len(taken) == 2
    return found


def with_gradients(act, tensors, grad=None):
    leaves = [tensor.detach().view(tensor.shape).requires_grad_() for tensor in tensors]
    y = act(*leaves)
    grad = (
        torch.linspace(-1, 1, y.numel(), dtype=torch.float64, device=y.device).view(y.shape) if grad is None else grad
    )
    return [y.detach(), *torch.autograd.grad(y, leaves, grad.to(y.dtype))]


def assert_right(act, *tensors, rtol=1e-5):
    got = by_kernel(act, *tensors)
    with paths.formula_only():
        want = with_gradients(act, [tensor.double() for tensor in tensors])
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=rtol, atol=rtol * b.abs().max().item())
    return got


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rows, dim", [(1, 7), (5, 37), (3, 64), (3, 384)], ids=["one", "prime", "full", "known"])
def test_every_rule(rule, rows, dim):
    act = lambda x, w, b: ops.row_norm(x, w, b, RULES[rule])  # noqa: E731
    assert_right(act, numbers(rows, dim, offset=0.5).float(), numbers(dim).float(), numbers(dim).float())


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dim", [37, 40], ids=["prime", "full"])
def test_every_rule_where_rows_are_walked_along(rule, dim, walked):
    act = lambda x, w, b: ops.row_norm(x, w, b, RULES[rule])  # noqa: E731
    assert_right(act, numbers(3, dim, offset=0.5).float(), numbers(dim).float(), numbers(dim).float())


@pytest.mark.parametrize("rule", ["layer", "rms", "llama"])
@pytest.mark.parametrize("dim", [5, 37, 384, 1500])
def test_a_row_has_the_same_bits_in_any_batch(rule, dim):
    act = lambda x, w: ops.row_norm(x, w, None, RULES[rule])  # noqa: E731
    x, weight, grad = numbers(70, dim, offset=0.5).float(), numbers(dim).float(), numbers(70, dim).sin().float()
    y, dx, _ = by_kernel(act, x, weight, grad=grad)
    for some in (slice(1), slice(67, 70)):
        own, down, _ = by_kernel(act, x[some], weight, grad=grad[some])
        assert torch.equal(own, y[some])
        assert torch.equal(down, dx[some])


@pytest.mark.parametrize("rule", ["layer", "absolute"])
@pytest.mark.parametrize("dim", [5, 100, 1000, 1024, 4096])
def test_an_offset_of_ten_thousand_costs_no_digits(rule, dim):
    x = (numbers(4, dim) + 1e4).float()
    y, dx = by_kernel(lambda x: ops.row_norm(x, None, None, RULES[rule]), x)
    want, dwant = with_gradients(lambda x: ops.row_norm(x, None, None, RULES[rule]), [x.double()])
    torch.testing.assert_close(y.double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dx.double(), dwant, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offset", [0, 1e4])
def test_a_long_row_has_no_more_than_a_few_roundings(offset):
    x = (numbers(4, 4096) + offset).float()
    y, _ = by_kernel(lambda x: ops.layer_norm(x, (4096,)), x)
    with paths.formula_only():
        want = ops.layer_norm(x.double(), (4096,))
    assert (y.double() - want).abs().max() < 8 * 2.0**-24 * want.abs().max()


@pytest.mark.parametrize("rule", ["layer", "rms", "maximum"])
def test_a_program_has_fewer_rows_than_the_others(rule):
    act = lambda x, w, b: ops.row_norm(x, w, b, RULES[rule])  # noqa: E731
    assert_right(act, numbers(53, 1024, offset=0.5).float(), numbers(1024).float(), numbers(1024).float())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once_whatever_the_type_of_the_gain(kind):
    x, w = numbers(6, 33).to(kind), (numbers(33) + 1).float()
    y, dx, dw = by_kernel(lambda x, w: ops.rms_norm(x, (33,), w), x, w)
    want, *_ = with_gradients(lambda x, w: ops.rms_norm(x, (33,), w), [x.double(), w.double()])
    half = torch.finfo(kind).eps / 2
    assert (y.dtype, dx.dtype, dw.dtype) == (kind, kind, torch.float32)
    assert ((y.double() - want).abs() <= 1.01 * half * want.abs() + 1e-7).all()
    grad = (numbers(6, 33) * 0.1).to(kind)
    *_, dw = by_kernel(lambda x, w: ops.rms_norm(x, (33,), w), x, w, grad=grad)
    *_, dwwant = with_gradients(lambda x, w: ops.rms_norm(x, (33,), w), [x.double(), w.double()], grad)
    torch.testing.assert_close(dw.double(), dwwant, rtol=1e-5, atol=1e-6)


def test_gradients_of_gains_are_the_same_bits_each_time():
    x, w = numbers(50, 24).float(), numbers(24).float()
    one, other = (by_kernel(lambda x, w: ops.rms_norm(x, (24,), w), x, w) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rule", ["layer", "rms", "maximum", "length"])
def test_what_is_not_finite_spoils_its_own_row_alone(rule, value):
    x = numbers(4, 9).float()
    x[2, 3] = value
    y, dx = by_kernel(lambda x: ops.row_norm(x, None, None, RULES[rule]), x)
    with paths.formula_only():
        want, dwant = with_gradients(lambda x: ops.row_norm(x, None, None, RULES[rule]), [x])
    torch.testing.assert_close(y, want, equal_nan=True)
    torch.testing.assert_close(dx, dwant, equal_nan=True, rtol=1e-5, atol=1e-6)
    assert y[[0, 1, 3]].isfinite().all()


@pytest.mark.parametrize("value", [0.0, 1e-20, 6e4, 1e20])
@pytest.mark.parametrize("rule", RULES)
def test_tiny_and_huge_rows_are_what_the_formula_makes_of_them(rule, value):
    x = (numbers(3, 8).sign() * value).float()
    x[1] = numbers(8).float()
    y, dx = by_kernel(lambda x: ops.row_norm(x, None, None, RULES[rule]), x)
    with paths.formula_only():
        want, dwant = with_gradients(lambda x: ops.row_norm(x, None, None, RULES[rule]), [x])
    torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(dx, dwant, rtol=1e-4, atol=1e-5 * max(1.0, dwant.abs().max().item()), equal_nan=True)


@interpreter_only
def test_a_row_whose_mean_square_is_not_normal_keeps_its_root(monkeypatch):
    """On a GPU one over a root takes what is not normal for 0."""
    from triton.runtime import interpreter

    given = interpreter.InterpreterBuilder.create_rsqrt
    assert given is not None

    def flushing(self, arg):
        data = np.where(np.abs(arg.data) < 2.0**-126, 0, arg.data).astype(arg.data.dtype)
        return given(self, interpreter.TensorHandle(data, arg.dtype))

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_rsqrt", flushing)
    x = numbers(3, 8).float() * 3e-20
    y, _ = by_kernel(lambda x: ops.rms_norm(x, (8,), eps=0.0), x)
    with paths.formula_only():
        want = ops.rms_norm(x.double(), (8,), eps=0.0)
    assert (x.double().square().mean(1) < 2.0**-126).all()
    torch.testing.assert_close(y.double(), want, rtol=1e-5, atol=1e-5)


def test_rows_with_gaps_between_them_and_views_that_are_not_aligned():
    whole = numbers(6, 40).float()
    for x in (whole[:, :17], whole[::2], whole.t(), whole.flatten()[1:201].view(5, 40)):
        assert_right(lambda x: ops.rms_norm(x, x.shape[-1:]), x)


def test_a_tensor_that_is_on_neither_processor_takes_the_formula():
    with paths.watch() as taken:
        assert ops.rms_norm(torch.ones(3, 8, device="meta"), (8,)).shape == (3, 8)
    assert [str(path) for path in taken] == [f"formula: no {'CPU' if ON_GPU else 'GPU'} kernel for a tensor on meta"]


def test_a_single_gain_for_all():
    assert_right(lambda x, w: ops.row_norm(x, w, None, RULES["length"]), numbers(7, 20).float(), numbers(1).float())


def test_an_addition_is_rounded_as_it_is_stored():
    x, residual = numbers(5, 24).bfloat16(), numbers(5, 24).flip(0).bfloat16()
    with paths.watch() as taken:
        y, total = ops.add_rms_norm(x, residual)
    assert taken[0].why is None
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(y.double(), ops.rms_norm(total.double(), (24,)), rtol=2.0**-8, atol=0)


REFUSED = {
    "float64": (lambda x: ops.rms_norm(x.double(), (4,)), "no GPU kernel for torch.float64"),
    "tiny eps": (lambda x: ops.rms_norm(x, (4,), eps=1e-40), "eps is below the normal numbers"),
    "empty": (lambda x: ops.rms_norm(x[:0], (4,)), "the input is empty"),
    "derivative": (lambda x: torch.func.grad(lambda x: ops.rms_norm(x, (4,)).sum())(x), "torch.func"),
    "negated": (lambda x: ops.rms_norm(torch.complex(x, x).conj().imag, (4,)), "lazily negated"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_kernel_does_not_take_the_formula_does_and_says_why(case):
    act, why = REFUSED[case]
    with paths.watch() as taken:
        act(torch.ones(2, 4, device=DEVICE))
    assert any(why in str(path) for path in taken), [str(path) for path in taken]
    assert all(path.by == "formula" for path in taken)


def test_second_derivatives_are_those_of_the_formula():
    x = numbers(3, 6).float().requires_grad_()
    [first] = torch.autograd.grad(ops.rms_norm(x, (6,)).square().sum(), x, create_graph=True)
    [second] = torch.autograd.grad(first.square().sum(), x)
    wide = x.detach().double().requires_grad_()
    [first] = torch.autograd.grad(ops.rms_norm(wide, (6,)).square().sum(), wide, create_graph=True)
    [want] = torch.autograd.grad(first.square().sum(), wide)
    torch.testing.assert_close(second.double(), want, rtol=1e-4, atol=1e-6)


FAR = """
import numpy as np, torch
import triton.language as tl
from triton.runtime import interpreter
from normkit import ops
from normkit.ops import paths
from normkit.kernels.cuda.templates import channel, row

with paths.watch() as taken:
    ops.rms_norm(torch.ones(2, 8), (8,))
print(*taken)

dim, rows = 2**20, 2**12 + 3
memory = torch.zeros(3, dim)
memory[2] = torch.linspace(-1, 1, dim)

def far(tensor):  # as if its rows were the last of many
    base = tensor.data_ptr() - 4 * dim * (rows - 3)
    kind = tl.pointer_type(tl.float32)
    return tl.tensor(interpreter.TensorHandle(np.array([base % 2**64], dtype=np.uint64), kind), kind)

def run(kernel, place, *arguments, **constants):
    function, number = kernel.interpreted.rewrite(), interpreter._implicit_cvt
    scope = interpreter._patch_lang(function)
    interpreter.interpreter_builder.set_grid_dim(rows, 16, 1)
    interpreter.interpreter_builder.set_grid_idx(*place, 0)
    given = [a if isinstance(a, tl.tensor) or a is None or isinstance(a, float) else number(a) for a in arguments]
    function(*given, **constants)
    scope.restore()

there = torch.zeros(3, dim)
run(row.forward_long, (rows - 1, 0), far(memory), None, None, None, None, far(there), None,
    rows, dim, dim, 1 / dim, 1 / dim, 1e-6, 1.0, 0.0, 1.0,
    STATISTIC=0, CENTER=0, PLACE=0, EARLY=0, SHARED=0, PART=0, FULL=1, ROWS=1, BLOCK=2**16)
assert torch.allclose(there[2], torch.nn.functional.rms_norm(memory[2], (dim,), eps=1e-6), rtol=1e-5)
assert not there[:2].any()

given = dict(STATISTIC=0, ACTIVATION=0, ROWS=1, BLOCK=2**16)
first, last = (0, (rows - 1, 0), rows, dim, 16, 1), (1, (rows - 1, 15), dim, rows, 1, rows)
for last, place, channels, space, steps, pieces in (first, last):
    there = torch.zeros(3, dim)
    moments = torch.stack([torch.full((channels,), 3.0), torch.full((channels,), 4.0)]).double().flatten()
    run(channel.write, place, far(memory), None, None, None, moments, None, far(there), 1, channels, channels, 1,
        space, steps, pieces, channels, 0.0, OVER=0, LAST=last, **given)
    begin = 15 * 2**16 if last else 0
    assert torch.allclose(there[2, begin:], (memory[2, begin:] - 3) / 2)
    assert not there[:2].any() and not there[2, :begin].any()
"""


@interpreter_only
def test_offsets_into_tensors_of_more_than_2_to_the_32_entries_do_not_wrap():
    """Only the last of its rows is there, and only its program is run: an offset that wraps ends the process.

    The process is told by a variable to send CPU tensors to the interpreter.
    """
    environment = {**os.environ, "NORMKIT_KERNELS": "interpret"}
    done = subprocess.run([sys.executable, "-c", FAR], check=False, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Triton kernel, interpreted\n"), done.stderr[-600:]


def test_nothing_of_triton_is_imported_before_it_is_asked_for():
    code = "import sys, torch, normkit as nk; nk.LayerNorm(8)(torch.ones(2, 8)); nk.RMSNorm(8)(torch.ones(2, 8))\n"
    code += "assert 'triton' not in sys.modules and not any('cuda.templates' in name for name in sys.modules)"
    environment = {**os.environ, "NORMKIT_KERNELS": "on"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# Deliberate mistakes, each in a copy of the kernels.

MISTAKES = {
    "a missing mask of a load": ("v = tl.load(x + where, mask=inside, other=0.0)", "v = tl.load(x + tl.abs(where))"),
    "what is outside counts": (
        "z = tl.where(inside, v - mean[:, None], 0.0)\n        total",
        "z = v - mean[:, None]\n        total",
    ),
    "a wrong count": ("rsqrt(raw * portion + eps)", "rsqrt(raw * (portion * 1.05) + eps)"),
    "sums in float16": (
        "add_up(first_of(z * z, at, part, PART), 1)",
        "add_up(first_of(z * z, at, part, PART).to(tl.float16), 1)",
    ),
    "a forgotten offset of the gain": ("else gain + offset", "else gain"),
    "all entries of a part": ("tl.where((at < part)[None, :], v, 0.0)", "v"),
    "what is outside has a sign": ("if CENTER and (STATISTIC != SQUARE):", "if False:"),
    "eps in the wrong place": ("root(raw * portion) + eps)", "root(raw * portion + eps))"),
    "the mean is not subtracted in the backward pass": ("return v - mean[:, None]\n", "return v\n"),
    "what the mean leaves is forgotten": (
        "return left, tl.where(squares < 0, 0.0, squares)",
        "return 0.0 * left, square",
    ),
    "what the mean leaves stays in the row": ("z * r[:, None] - (left * r)[:, None]", "z * r[:, None]"),
    "a width that is another": ("dim = WIDTH", "dim = WIDTH - 1"),
    "r of rows that are kept otherwise": ("        r = reciprocal(raw, portion", "        reciprocal(raw, portion"),
    "no pull": ("moved = pull[:, None] * t", "moved = 0.0 * t"),
    "no pull of what is centered": ("(pull * r)[:, None] * t", "0.0 * t"),
    "no shift": (" + (shift * r)[:, None])", ")"),
    "each program takes the first rows": ("row = program * chunk + first", "row = first"),
    "the gain is left out of h": ("h = g * gain\n", "h = g + 0.0 * gain\n"),
    "ties are not shared": ("over(along, tl.where(ties > 0, ties, 1.0))", "along"),
    "the addition is not rounded": (
        "(v.to(tl.float32) + more.to(tl.float32)).to(x.dtype.element_ty)",
        "v.to(tl.float32) + more.to(tl.float32)",
    ),
    "the early cast is forgotten": ("n = n.to(kind).to(tl.float32)", "n = n"),
    "the other gradient is dropped": ("d += tl.load(more + where, mask=inside, other=0.0).to(tl.float32)", "d += 0.0"),
    "NaN is lost in a maximum": ("largest(tl.abs(z), 1)", "tl.reduce(tl.abs(z), 1, tl.standard._elementwise_max)"),
}


def battery():
    """Whether all of some small calls are right: one for each thing that a kernel does."""
    x, w, b = numbers(9, 21, offset=1.0).float(), (numbers(21) + 1).float(), numbers(21).float()
    for name, rule in RULES.items():
        assert_right(lambda x, w, b, rule=rule: ops.row_norm(x, w, b, rule), x, w, b)
        if name in ("layer", "rms"):
            assert_right(lambda x, rule=rule: ops.row_norm(x, None, None, rule), x * 300 + 1e4)
    assert_right(lambda x: ops.row_norm(x, None, None, RULES["maximum"]), x.round())
    assert_right(lambda x: ops.row_norm(x, None, None, RULES["layer"]), numbers(5, 1100).float())
    assert_right(lambda x: ops.row_norm(x, None, None, RULES["layer"]), numbers(2, 384).float())
    half = (x * 7).bfloat16(), numbers(9, 21).bfloat16()
    y, total = ops.add_row_norm(*half, w.bfloat16(), None, RULES["llama"])
    with paths.formula_only():
        wanted = ops.add_row_norm(*half, w.bfloat16(), None, RULES["llama"])
    assert torch.equal(total, wanted[1])
    assert ((y - wanted[0]) == 0).float().mean() > 0.97
    both = [t.float().requires_grad_() for t in half]
    y, total = ops.add_row_norm(*both, None, None, RULES["rms"])
    found = torch.autograd.grad(y.sum() + total.square().sum(), both)
    with paths.formula_only():
        y, total = ops.add_row_norm(*both, None, None, RULES["rms"])
        wanted = torch.autograd.grad(y.sum() + total.square().sum(), both)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    odd = x.clone()
    odd[1, 1] = math.nan
    assert ops.row_norm(odd, None, None, RULES["maximum"])[1].isnan().all()


def test_the_battery_passes_the_kernels_as_they_are():
    battery()


@interpreter_only
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_kernel_is_caught(mistake, monkeypatch, tmp_path):
    from normkit.kernels.cuda import templates
    from normkit.kernels.cuda.templates import row

    with open(row.__file__) as file:
        source = file.read()
    right, wrong = MISTAKES[mistake]
    assert right in source
    copy = tmp_path / "mistaken.py"
    copy.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("mistaken", copy)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(templates, "row", module)
    monkeypatch.setitem(sys.modules, row.__name__, module)
    forget_plans()
    torch.use_deterministic_algorithms(True, warn_only=True)  # what no program writes is NaN, not an earlier result
    try:
        with pytest.raises(Exception):  # noqa: B017  a wrong number, or what Triton has against it
            battery()
    finally:
        torch.use_deterministic_algorithms(False)
        forget_plans()


@pytest.mark.parametrize("shape, channels_last", [((23, 1), True), ((5, 1, 8), False)])
def test_of_one_feature_the_gain_and_what_all_share_have_their_own_gradients(shape, channels_last):
    act = lambda *tensors: ops.derf(*tensors, function="tanh", channels_last=channels_last)  # noqa: E731
    assert_right(act, numbers(*shape).float(), *(torch.full((1,), n, device=DEVICE) for n in (0.5, 0.3, 1.5)))
