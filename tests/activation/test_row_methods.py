"""Norms within a vector: defaults that show in small numbers, where rounding happens, eps of zero, second gradients."""

import math

import pytest
import torch

import normkit as nk
from normkit import ops
from normkit.ops.row import row_formula

D = torch.float64


@pytest.mark.parametrize("path", [lambda norm: norm, torch.func.vmap], ids=["kernel", "formula"])
@pytest.mark.parametrize("name, eps", [("scalenorm", 1e-5), ("factorized-layernorm", 1e-12)])
def test_lengths_below_the_default_eps_are_divided_by_it(name, eps, path):
    norm = nk.create(name, 2, **({"project": False} if name == "factorized-layernorm" else {}), dtype=D)
    x = torch.tensor([[3.0, 4.0]], dtype=D)
    torch.testing.assert_close(path(norm)(x * eps / 10), math.sqrt(2) * x / 10)
    torch.testing.assert_close(path(norm)(x * eps), math.sqrt(2) * x / 5)


def test_the_default_eps_of_an_absolute_deviation_is_added_to_it():
    x = 1e-5 * torch.tensor([[1.0, -1.0]], dtype=D)
    want = x / (nk.create("l1-layernorm", 2, eps=0.0, dtype=D)(x).pow(-1).abs() * 1e-5 + 1e-5)
    torch.testing.assert_close(nk.create("l1-layernorm", 2, dtype=D)(x), want)


@pytest.mark.parametrize("offset, early", [(0.0, True), (1.0, False)])
def test_a_half_precision_result_is_rounded_before_the_gain_unless_there_is_an_offset(offset, early):
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    norms = {cast: nk.create("rmsnorm", 16, offset=offset, cast=cast) for cast in ("auto", "early", "late")}
    for norm in norms.values():
        torch.nn.init.constant_(norm.weight, 1.3)
    y = {cast: norm(x) for cast, norm in norms.items()}
    assert not torch.equal(y["early"], y["late"])
    assert torch.equal(y["auto"], y["early" if early else "late"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_floor_of_zero_leaves_every_length_at_one(dtype):
    x = torch.tensor([[3.0, 4.0], [3e-15, 4e-15], [3e15, 4e15]], dtype=dtype, requires_grad=True)
    rule = ops.Row(eps=0.0, eps_place="floor")
    y = ops.row_norm(x, rule=rule)
    torch.testing.assert_close(row_formula(x, None, None, rule), y)
    torch.testing.assert_close(y, torch.tensor([[0.6, 0.8]], dtype=dtype).expand(3, 2))
    y[:, 0].sum().backward()
    want = torch.tensor([[0.128, -0.096]], dtype=dtype) / x.detach()[:, :1] * 3  # 1 / |x| - x1² / |x|³, and so on
    torch.testing.assert_close(x.grad, want)


def test_the_gradient_of_a_fused_addition_has_a_gradient():
    """Of both results, where the graph is kept."""
    generator = torch.Generator().manual_seed(0)
    x, residual, g, h = (torch.randn(3, 5, dtype=D, generator=generator) for _ in range(4))

    def total_gradient(add):
        a, b = x.clone().requires_grad_(), residual.clone().requires_grad_()
        y, total = add(a, b)
        (first,) = torch.autograd.grad((y * g).sum() + (total**3 * h).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), (a, b))

    rule = ops.Row(center=True, eps=1e-3)
    got = total_gradient(lambda a, b: ops.add_row_norm(a, b, rule=rule))
    want = total_gradient(lambda a, b: (torch.nn.functional.layer_norm(a + b, (5,), eps=1e-3), a + b))
    torch.testing.assert_close(got, want)
