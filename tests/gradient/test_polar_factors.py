"""Polar factors by products: the page's errors, the Gram form, and stacks."""

import importlib.util
import pathlib

import pytest
import torch

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


def drawn(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_tall_matrices_are_the_transposed_of_wide_ones_and_lie_in_memory_as_they_came():
    x = drawn((3, 12, 5))
    tall, wide = ops.polar(x, [MUON] * 5), ops.polar(x.mT.contiguous(), [MUON] * 5)
    torch.testing.assert_close(tall, wide.mT, rtol=1e-12, atol=1e-12)
    assert tall.is_contiguous()
    for one, alone in zip(tall, x, strict=True):
        torch.testing.assert_close(one, ops.polar(alone, [MUON] * 5), rtol=1e-12, atol=1e-12)
