"""The channel operations: the kernel against the formula and against equations worked out in float64."""

import pytest
import torch

from channel_calls import OPERATIONS, draw, online, run
from normkit import ops
from normkit.ops import paths

SHAPES = [(4, 24, 9, 7), (2, 24, 40, 33), (1, 24, 3, 3), (3, 24, 1100), (2, 72, 5, 5), (3, 12, 2, 2, 3), (70, 6, 1, 2)]
LIVE = ops.refusal(torch.ones(2, 2)) is None
needs_kernels = pytest.mark.skipif(not LIVE, reason="the C kernels are not built")


def by_formula(*arguments):
    with paths.formula_only():
        return run(*arguments)


@needs_kernels
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_kernel_gives_the_formulas_numbers(name, shape, last):
    operation, count = OPERATIONS[name]
    x, parameters, grad = draw(shape, count, last=last)
    got, want = run(operation, x, parameters, grad), by_formula(operation, x, parameters, grad)
    for a, b in zip(got, want, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_instruction_set_and_type(name, last, dtype, isa):
    operation, count = OPERATIONS[name]
    x, parameters, grad = draw((3, 24, 9, 7), count, dtype, last)
    got = run(operation, x, [p.float() for p in parameters], grad)
    want = by_formula(operation, x.double(), parameters, grad.double())
    for a, b in zip(got, want, strict=True):
        # one rounding to the type, and float32 sums of a few hundred terms that may cancel
        unit = max(2 * torch.finfo(a.dtype).eps, 2e-5)
        torch.testing.assert_close(a.double(), b, rtol=unit, atol=unit * b.abs().max().item())


OFFSET = [(name, last) for name in ("batch", "group", "instance") for last in (False, True)]


@needs_kernels
@pytest.mark.parametrize("name,last", [*OFFSET, ("layer2d", False)])  # channels last, layer2d is a row norm
def test_an_offset_costs_no_digits(name, last):
    operation, count = OPERATIONS[name]
    x, parameters, _ = draw((3, 24, 40, 33), count, last=last)
    x = (x + 1e4).float()
    want = operation(x.double(), *parameters)
    got = operation(x, *(p.float() for p in parameters))
    # x itself is exact here: both see the float32 values; the mean's rounding must not show
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_results_do_not_depend_on_threads(name, last):
    operation, count = OPERATIONS[name]
    x, parameters, grad = draw((3, 24, 40, 33), count, torch.float32, last)
    parameters = [p.float() for p in parameters]
    threads = torch.get_num_threads()
    try:
        results = []
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            results.append(run(operation, x, parameters, grad))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_bad_value_spoils_what_it_spoils_in_the_formula(name, last, value):
    operation, count = OPERATIONS[name]
    x, parameters, grad = draw((3, 24, 5, 6), count, torch.float32, last)
    x[1, 2, 3, 4] = value
    parameters = [p.float() for p in parameters]
    got, want = run(operation, x, parameters, grad), by_formula(operation, x, parameters, grad)
    assert torch.equal(got[0].isfinite(), want[0].isfinite())


def test_a_silent_channel_has_a_zero_gradient_through_its_length():
    x, parameters, grad = draw((2, 6, 3, 4), 2)
    x[0, 1] = 0
    _, dx, *_ = run(ops.global_response_norm, x, parameters, grad)
    torch.testing.assert_close(dx[0, 1], grad[0, 1])


def test_batch_norm_gives_its_moments():
    x = torch.randn(5, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    _, found = ops.batch_norm(x)
    values = x.double().movedim(1, 0).flatten(1)
    torch.testing.assert_close(found.mean.double(), values.mean(1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.unbiased().double(), values.var(1), rtol=1e-6, atol=1e-6)
    assert not found.mean.requires_grad
    assert found.count == 5 * 4 * 6


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_online_goes_on_by_the_formula_where_the_kernel_refuses_the_gradient(dtype):
    x, parameters, grad = draw((5, 6, 4, 3), 2, dtype)
    given = x.clone().requires_grad_()
    leaves = [p.clone().requires_grad_() for p in parameters]
    y = online(given, *leaves)
    with paths.formula_only():
        y.backward(grad)
    got, want = [y.detach(), given.grad, *(p.grad for p in leaves)], run(online, x, parameters, grad)
    for a, b in zip(got, want, strict=True):
        unit = 1e-12 if dtype == torch.float64 else max(2 * torch.finfo(a.dtype).eps, 2e-5)  # float32 sums
        torch.testing.assert_close(a, b, rtol=unit, atol=unit * b.abs().max().item())


@pytest.mark.parametrize("name", ["batch", "group", "instance", "response", "layer2d"])
def test_a_single_gain_serves_all_channels(name):
    operation, _ = OPERATIONS[name]
    x, _, grad = draw((2, 24, 5, 4), 2)
    one = [torch.tensor([2.0], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)]
    got, want = run(operation, x, one, grad), run(operation, x, [p.expand(24) for p in one], grad)
    for a, b in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(got[2:], want[2:], strict=True):
        torch.testing.assert_close(a, b.sum(0, keepdim=True))


def test_a_response_norm_takes_its_channels_last_too():
    x, weight, bias = torch.randn(2, 5, 4, 6), torch.randn(6), torch.randn(6)
    want = ops.global_response_norm(x.movedim(-1, 1), weight, bias, eps=0.1).movedim(1, -1)
    torch.testing.assert_close(ops.global_response_norm(x, weight, bias, eps=0.1, channels_last=True), want)
    length = x.norm(dim=(1, 2), keepdim=True)
    share = length / (length.mean(-1, keepdim=True) + 0.1)
    torch.testing.assert_close(want, weight * x * share + bias + x)


@pytest.mark.parametrize(
    "op, eps, wanted",
    [
        (lambda x: ops.batch_norm(x)[0], 1e-5, 0.5),
        (lambda x: ops.group_norm(x, 1), 1e-5, 0.5),
        (ops.instance_norm, 1e-5, 0.5),
        (ops.layer_norm2d, 1e-6, 0.5),
    ],
    ids=["batch", "group", "instance", "position"],
)
def test_the_default_eps_is_the_one_of_the_layers_that_are_replaced(op, eps, wanted):
    """Entries of plus and minus sqrt(eps / 3): their variance is a third of eps, so that they come out as halves."""
    sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    x = (eps / 3) ** 0.5 * torch.stack([sign, -sign])[..., None].expand(2, 2, 2, 2)
    torch.testing.assert_close(op(x).abs(), torch.full_like(x, wanted))


def test_many_small_numbers_of_a_group_are_not_rounded_by_a_large_one():
    x = torch.zeros(2, 1024, dtype=torch.float64)
    x[:, 100] = 9.0
    mean = x.mean(1, keepdim=True)
    want = (x - mean) / ((x - mean).square().mean(1, keepdim=True) + 1e-5).sqrt()
    assert (ops.group_norm(x, 1) - want).abs().max() < 1e-13


def test_the_mean_length_of_many_equal_channels_is_theirs():
    x = torch.full((2, 4096, 3), 0.7, dtype=torch.float64)
    gain = torch.ones(4096, dtype=torch.float64)
    want = 0.7 + 0.7 / (1 + 1e-6 / (3**0.5 * 0.7))
    assert (ops.global_response_norm(x, gain, gain * 0) - want).abs().max() < 1e-14
