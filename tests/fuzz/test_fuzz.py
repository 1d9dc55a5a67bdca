"""The fuzz for some seconds, and that it sees a fault. For long: `python -m tests.fuzz --minutes 30`."""

import os
import time

import pytest
import torch

from normkit import kernels, ops

from . import __main__ as command
from .cases import CASES, drawn
from .draw import Draw
from .judge import judge
from .near import Near, Unit

SECONDS = float(os.environ.get("NORMKIT_FUZZ_SECONDS", "12"))
live = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))


def test_kernel_formula_and_float64_agree_on_random_calls():
    sets, before = command.sets_here(), kernels.status().isa
    until, number, wrong = time.monotonic() + SECONDS, 0, []
    try:
        while time.monotonic() < until or number < 2 * len(CASES):
            isa = sets[number % len(sets)]
            command.use(isa)
            found, _ = judge(number)
            if found:
                wrong.append("\n    ".join([command.line(number, 0, isa, None), *found]))
            number += 1
    finally:
        command.use(before or "none")
    assert not wrong, f"{len(wrong)} of {number} cases\n" + "\n".join(wrong)


@live
@pytest.mark.parametrize("name", ["row_norm", "derf", "rotate", "group_norm", "online_norm"])
def test_a_kernel_that_is_a_little_off_is_found(name, monkeypatch):
    library = kernels.cpu()
    assert library is not None
    kernel = {"row_norm": "row_forward", "derf": "point_forward", "rotate": "rotate_forward"}.get(
        name, "channel_forward"
    )
    honest = getattr(library, kernel)
    result = {"row_forward": 5, "point_forward": 5, "rotate_forward": 5, "channel_forward": 6}[kernel]

    def off(plan, rows, *tensors):
        honest(plan, rows, *tensors)
        tensors[result].mul_(1 + 1e-2)

    monkeypatch.setattr(library, kernel, off)
    verdicts = [judge(number, only=name) for number in range(30)]
    assert sum(bool(found) for found, by_kernel in verdicts if by_kernel) >= 10


def test_a_refusal_of_one_side_alone_is_found(monkeypatch):
    honest = ops.group_norm

    def stern(x, *arguments, **options):
        from normkit.ops.paths import watching

        if watching() is None or watching().forced is None:
            raise ValueError("the kernel takes no such thing")
        return honest(x, *arguments, **options)

    monkeypatch.setattr(ops, "group_norm", stern)
    found = [said for number in range(20) for said in judge(number, only="group_norm")[0]]
    assert any("the formula's nothing" in said for said in found)


def test_a_case_is_its_number():
    for number in range(40):
        one, again = drawn(number), drawn(number)
        assert (one.op, one.options, one.wanted) == (again.op, again.options, again.wanted)
        for name, tensor in one.tensors.items():
            other = again.tensors[name]
            assert tensor is None if other is None else torch.equal(tensor.nan_to_num(), other.nan_to_num())
            assert tensor is None or tensor.stride() == other.stride()


def test_every_op_is_drawn_with_all_types_and_most_layouts():
    cases = [drawn(number) for number in range(800)]
    assert {case.op for case in cases} == set(CASES)
    xs = [case.tensors["x"] for case in cases]
    assert {x.dtype for x in xs} == {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    assert sum(not x.is_contiguous() for x in xs) > 120
    assert sum(x.storage_offset() % 2 for x in xs) > 20
    assert sum(0 in x.stride() for x in xs) > 20
    assert any(x.numel() == 0 for x in xs)


def test_no_float32_result_is_outside_its_bound():
    d = Draw(0, 0)
    unit = Unit(2.0**-24, 2.0**-149)
    a, b = (d.numbers((2000,)).float().double() * 100 for _ in range(2))
    one, other = Near(a, 0.0, unit), Near(b, 0.0, unit)
    near = (one * other - other / 3 + one).square().reciprocal_root().sum((0,))
    x, y = a.float(), b.float()
    got = (x * y - y / 3 + x).square().rsqrt().sum().double()
    assert (got - near.value).abs() <= near.error
    assert near.error < 0.01 * near.value  # and the bound says something
