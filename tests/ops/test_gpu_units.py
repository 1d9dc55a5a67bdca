"""Units of channels that a program holds: one launch forward, and one more where parameters learn."""

import math

import pytest
import torch

from channel_calls import OPERATIONS, draw, run
from normkit import ops
from normkit.kernels import cuda
from normkit.ops import paths
from place import DEVICE, kernels

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
NAMES = ["group", "instance", "response", "threshold", "learned", "swish", "silu"]


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that were launched, in turn."""
    from normkit.kernels.cuda import channels

    names, start = [], channels.start

    def told(call, *rest):
        names.append(call.kernel.fn.__name__)
        start(call, *rest)

    monkeypatch.setattr(channels, "start", told)
    monkeypatch.setenv("NORMKIT_TRIAL", "off")  # whose launches would be among them
    with kernels():
        yield names


def assert_right(name, x, parameters, grad, unit=1e-5):
    found = run(OPERATIONS[name][0], x, parameters, grad)
    with paths.formula_only():
        wanted = run(OPERATIONS[name][0], x.double(), [p.double() for p in parameters], grad.double())
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=unit, atol=unit * b.abs().max().item())


def drawn(name, shape, dtype=torch.float32):
    x, parameters, grad = draw(shape, OPERATIONS[name][1], dtype)
    return x.to(DEVICE), [p.to(DEVICE, torch.float32) for p in parameters], grad.to(DEVICE)


@pytest.mark.parametrize("shape", [(2, 6, 7, 3), (3, 3, 5), (1, 12, 16)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_one_launch_forward_and_two_backward(name, shape, launched):
    assert_right(name, *drawn(name, shape))
    assert launched == ["forward", "backward", "parameters"]


def test_without_parameters_it_is_one_launch_each(launched):
    x = torch.randn(3, 4, 9, requires_grad=True, device=DEVICE)
    ops.group_norm(x, 2).square().sum().backward()
    assert launched == ["forward", "backward"]


def test_an_offset_costs_no_digits(launched):
    x, parameters, grad = drawn("group", (2, 3, 17, 3))
    assert_right("group", x + 1e4, parameters, grad)


@pytest.mark.parametrize("value", [math.nan, 1e30])
def test_a_bad_value_spoils_its_own_unit_alone(value, launched):
    x, parameters, grad = drawn("group", (2, 6, 5, 3))
    x[1, 2, 3, 1] = value
    found = run(OPERATIONS["group"][0], x, parameters, grad)
    with paths.formula_only():
        wanted = run(OPERATIONS["group"][0], x, parameters, grad)
    assert torch.equal(found[0].isfinite(), wanted[0].isfinite())
    assert torch.equal(found[1].isfinite(), wanted[1].isfinite())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(kind, launched):
    x, parameters, grad = drawn("swish", (2, 6, 4, 5), kind)
    y, dx, *_ = run(OPERATIONS["swish"][0], x, parameters, grad)
    with paths.formula_only():
        want, dwant, *_ = run(OPERATIONS["swish"][0], x.double(), [p.double() for p in parameters], grad.double())
    half = torch.finfo(kind).eps / 2
    assert ((y.double() - want).abs() <= 1.01 * half * want.abs() + 1e-6).all()
    assert ((dx.double() - dwant).abs() <= 1.01 * half * dwant.abs() + 1e-5).all()


def test_what_is_large_or_lies_otherwise_is_measured_first(launched):
    ops.group_norm(torch.randn(1, 2, 4096, device=DEVICE), 2)
    ops.group_norm(torch.randn(1, 4, 3, 3, device=DEVICE).to(memory_format=torch.channels_last), 2)
    ops.batch_norm(torch.randn(2, 3, 8, device=DEVICE))
    assert launched == ["measure", "join", "write"] * 3


def test_a_trial_and_a_call_of_its_kind_take_the_same_way():
    from normkit.kernels.cuda import settings
    from normkit.ops.channel import POSITIONS

    ways = [(min(space, POSITIONS).bit_length(), settings.unit(1, space) is None) for space in range(1, 9000, 7)]
    assert len(set(ways)) == len({bits for bits, _ in ways})
    assert {way for _, way in ways} == {False, True}
