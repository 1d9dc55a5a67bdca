"""Polar factors by products: the page's errors, the Gram form, strong directions, and stacks."""

import functools
import importlib.util
import pathlib

import pytest
import torch

import normkit as nk
from normkit import ops
from normkit.gradient._dialects import DIALECTS, QUINTIC
from normkit.gradient._muon import triples
from normkit.ops.polar import MUON, polar_express

ROOT = pathlib.Path(__file__).parents[2]
PATH = ROOT / "benchmarks/polar_errors.py"


@pytest.fixture(scope="module")
def errors():
    spec = importlib.util.spec_from_file_location("polar_errors", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_errors_of_the_page_are_measured(errors):
    page = (ROOT / "docs/optimizers.md").read_text().partition("<!-- polar errors -->\n")[2]
    page = page.partition("\n<!-- end of polar errors -->")[0]
    _, _, *rows = page.strip().splitlines()
    assert len(rows) == len(errors.METHODS) * len(errors.TYPES)
    for row in rows:
        method, kind, *numbers = [cell.strip() for cell in row.strip("|").split("|")]
        if kind == "float32" and float(numbers[0]) > 1e-3:  # larger than another machine's rounding
            got = [errors.error(method, kind, condition) for condition in errors.CONDITIONS]
            assert [float(number) for number in numbers] == pytest.approx(got, rel=0.6)


@pytest.mark.parametrize("method", ["polar-express, 8 steps", "the same on the Gram matrix, 8", "halley, 4 steps"])
def test_converging_methods_are_exact_where_singular_values_are_in_reach(errors, method):
    assert errors.error(method, "float64", 1e2) < 1e-5
    assert errors.error(method, "float32", 1e2) < 1e-4


LISTS = {
    "newton-schulz": [MUON] * 5,
    "polar-express, 8": polar_express(10)[:8],
    "quintic": [*QUINTIC] * 2,
    "twelve converging": triples(None, DIALECTS["modded-nanogpt"]["ns_coefficients"], 12),
}


@pytest.mark.parametrize("shape", [(192, 64), (64, 192), (2, 64, 200)])
@pytest.mark.parametrize("name", LISTS)
def test_the_gram_form_is_the_same_and_stays_bounded_in_half_precision(errors, name, shape):
    plain, gram = (ops.polar(drawn(shape), LISTS[name], safety=1.01, gram=yes) for yes in (False, True))
    torch.testing.assert_close(gram, plain, rtol=1e-7, atol=1e-8)
    for condition in (1e3, 1e6):
        x = errors.matrix(condition, 0).bfloat16()
        found = ops.polar(x, LISTS[name], safety=1.01, gram=True).double()
        assert float(torch.linalg.matrix_norm(found, 2)) < 1.45


@pytest.mark.parametrize(
    "project, steps", [("torch", 5), ("torch", 6), ("torch", 10), *dict.fromkeys(DIALECTS, 0).items()]
)
def test_in_half_precision_the_gram_form_is_no_less_exact(errors, project, steps):
    row = DIALECTS[project]
    rows = triples(None, row.get("ns_coefficients", MUON), steps or row.get("ns_steps", 5))
    for condition in (1e1, 1e2, 1e3, 1e5):
        x = errors.matrix(condition, 0).bfloat16()
        left, _, right = torch.linalg.svd(x.double(), full_matrices=False)
        plain, gram = (ops.polar(x, rows, gram=yes).double() for yes in (False, True))
        assert not torch.equal(gram, plain)
        far, far_gram = (float((found - left @ right).norm()) for found in (plain, gram))
        assert far_gram < 1.02 * far
        mixed, mixed_gram = (float(of_other_directions(left.mT @ found @ right.mT)) for found in (plain, gram))
        assert mixed_gram < 1.02 * mixed
        largest, largest_gram = (float(torch.linalg.matrix_norm(found, 2)) for found in (plain, gram))
        assert largest_gram < largest + 0.02


def of_other_directions(x):
    """How long the part of a matrix is that turns singular directions into each other."""
    return (x - x.diagonal().diag()).norm()


def test_the_gram_form_is_taken_only_where_it_is_asked_for_and_float32_is_whole(monkeypatch):
    def taken(gram, shape, dtype):
        x = drawn(shape).to(dtype)
        plain = ops.polar(x, [MUON] * 5)
        got = ops.polar(x, [MUON] * 5, gram=gram)
        assert got.dtype == dtype
        return not torch.equal(got, plain)

    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert not taken(None, (32, 64), dtype)
        assert taken(True, (32, 64), dtype)
        assert taken(True, (3, 64, 32), dtype)
        assert not taken(True, (32, 32), dtype)
    with torch.autocast("cpu", torch.bfloat16):
        assert not taken(True, (32, 64), torch.float32)
    assert not taken_at("high", monkeypatch, lambda: taken(True, (32, 64), torch.float32))
    assert not taken_at(None, monkeypatch, lambda: taken(True, (32, 64), torch.bfloat16))
    compiled = torch.compile(lambda x: ops.polar(x, [MUON] * 5, gram=True), backend="eager", fullgraph=True)
    x = drawn((32, 64)).bfloat16()
    assert torch.equal(compiled(x), ops.polar(x, [MUON] * 5))
    with pytest.raises(ValueError, match="gram must be one of None, True, False, not 'yes'"):
        nk.Muon([torch.ones(2, 4)], gram="yes")


def taken_at(precision, monkeypatch, taken):
    """Whether the Gram form is taken at a precision of torch's; None: one that it does not name."""

    def named():
        if precision is None:
            raise RuntimeError("mix of the legacy and new APIs")
        return precision

    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_float32_matmul_precision", named)
        return taken()


STRONG = (0.9, 0.95, 0.99, 0.999)


def with_one_strong_direction(rows, columns, share, count=0):
    """Matrices of length 1, that share of which is one direction; of the others one is zero."""
    generator, count = torch.Generator().manual_seed(rows), count or 1600 // rows
    left = torch.linalg.qr(torch.randn(count, rows, rows, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(count, columns, rows, generator=generator)).Q
    weak = torch.rand(count, rows, generator=generator) * 0.3 + 0.02
    weak[:, :2] = 0
    s = weak / weak.norm(dim=-1, keepdim=True) * (1 - share**2) ** 0.5
    s[:, 0] = share
    return (left * s[:, None]) @ right.mT


@pytest.mark.parametrize("gram", [None, True])
@pytest.mark.parametrize("shape", [(8, 16), (16, 64), (32, 128), (64, 128)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_one_strong_direction_leaves_no_other_too_long(dtype, shape, gram):
    for share in STRONG:
        x = with_one_strong_direction(*shape, share).to(getattr(torch, dtype))
        assert float(torch.linalg.matrix_norm(ops.polar(x, [MUON] * 5, gram=gram).double(), 2).max()) < 1.25
        assert float(torch.linalg.matrix_norm(ops.polar(x.mT, [MUON] * 5, gram=gram).double(), 2).max()) < 1.25


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_no_method_lifts_singular_values_far_above_one(dtype):
    for method in ("newton-schulz", "polar-express", "cans"):
        for share in (*STRONG, 1.0):
            x = with_one_strong_direction(8, 16, share).to(dtype)
            for steps in (5, 8):
                y = nk.polar_factor(x, method=method, steps=steps)
                assert y.dtype == dtype
                assert float(torch.linalg.matrix_norm(y.double(), 2).max()) < 1.25


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize(
    "build", [nk.Muon, functools.partial(nk.Muon, gram=True), nk.NorMuon, nk.MuonClip, nk.MuonEq, nk.Dion2]
)
def test_steps_along_one_strong_direction_are_as_long_as_those_of_float32(build, foreach):
    for shape in ((8, 16), (16, 64), (32, 64), (64, 128)):
        for share in STRONG[:3]:
            grads = with_one_strong_direction(*shape, share, 15)
            lengths = []
            for dtype in ("bfloat16", "float32"):
                weights = [torch.nn.Parameter(torch.zeros(shape)) for _ in grads]
                optimizer = build(weights, lr=1.0, ns_dtype=dtype, foreach=foreach)
                for weight, grad in zip(weights, grads, strict=True):
                    weight.grad = grad.clone()
                optimizer.step()
                lengths.append(torch.stack([weight.detach().norm() for weight in weights]))
            assert float((lengths[0] / lengths[1]).max()) < 1.25


def drawn(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_coefficients_may_be_lists():
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    for gram in (None, True):
        assert torch.equal(ops.polar(x, [list(MUON)] * 5, gram=gram), ops.polar(x, [MUON] * 5, gram=gram))


def test_tall_matrices_are_the_transposed_of_wide_ones_and_lie_in_memory_as_they_came():
    x = drawn((3, 12, 5))
    tall, wide = ops.polar(x, [MUON] * 5), ops.polar(x.mT.contiguous(), [MUON] * 5)
    torch.testing.assert_close(tall, wide.mT, rtol=1e-12, atol=1e-12)
    assert tall.is_contiguous()
    for one, alone in zip(tall, x, strict=True):
        torch.testing.assert_close(one, ops.polar(alone, [MUON] * 5), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes, norm", [*enumerate(["rms", "rms", "spectral", "spectral-conv", "spectral-conv"])])
def test_the_direction_of_any_tensor_is_that_of_the_norm_for_its_axes(axes, norm):
    x = torch.randn((3, 4, 2, 2)[:axes], generator=torch.Generator().manual_seed(0))
    assert torch.equal(nk.lmo(x, norm="auto"), nk.lmo(x, norm=norm))
