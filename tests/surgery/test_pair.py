"""What counts as a difference between a module and its explanation: more than rounding can be."""

from types import SimpleNamespace

import pytest
import torch

from normkit.surgery.recognition.inputs import Shape
from normkit.surgery.recognition.lower import Lower
from normkit.surgery.recognition.pair import Differs, difference

D = torch.float64
UNIT = 2.0**-52


def told(theirs, ours, slack=0.0, axes=(-1,), where="normal"):
    theirs, ours = torch.tensor(theirs, dtype=D), torch.tensor(ours, dtype=D)
    return difference(theirs, ours, axes, UNIT, where, lambda: torch.full_like(ours, slack))


def test_what_rounding_may_be_is_the_share_that_is_reported():
    assert told([[1.0, 1000.0]], [[1.0, 1000.0 + 1e-12]]) == pytest.approx(1e-15, rel=0.2)
    assert told([[1.0, 1000.0]], [[1.0 + 1e-12, 1000.0]]) == pytest.approx(1e-15, rel=0.2)
    assert told([[1.0, 2.0]], [[1.0, 2.0 + 5e-6]], slack=1e-6) == pytest.approx(2.5e-6, rel=1e-4)
    assert told([], []) == 0


@pytest.mark.parametrize(
    "theirs, ours, slack, said",
    [
        ([[1.0, 1000.0]], [[1.0, 1000.0 + 1e-9]], 0.0, r"1000, not 1000\.000000001"),
        ([[1.0, 2.0], [3.0, 1e6]], [[1.0, 2.0 + 1e-9], [3.0, 1e6]], 0.0, r"2, not 2\.000000001"),
        ([[1.0, 2.0]], [[1.0, 2.1]], 1e-6, "2, not 2.1"),
        ([[1.0, 2.0]], [[1.0, 2.0 + 9e-6]], 1e-6, "2, not 2.00001"),
        ([[float("nan"), 2.0]], [[1.0, 2.0]], 1e-6, "nan, not 1"),
        ([1.0, 2.0], [[1.0, 2.0]], 0.0, r"shape \(2,\), not \(1, 2\)"),
    ],
)
def test_more_is_a_difference_and_is_reported_with_its_place(theirs, ours, slack, said):
    with pytest.raises(Differs, match=f"{said}, normal"):
        told(theirs, ours, slack)


def test_a_row_counts_by_its_own_largest_number():
    rows = [[1.0, 2.0], [3.0, 1e9]]
    off = [[1.0, 2.0 + 1e-9], [3.0, 1e9]]
    with pytest.raises(Differs):
        told(off, rows, axes=(1,))
    told(off, rows, axes=(0, 1))


def test_rounding_is_measured_with_every_second_number_moved_the_other_way(monkeypatch):
    lower, seen = object.__new__(Lower), []
    monkeypatch.setattr(lower, "_true", lambda pair, inputs, dtype: seen.append(inputs[0]) or [inputs[0]])
    x = torch.tensor([[1.0, -2.0, 4.0], [8.0, 16.0, -32.0]])
    lower._compare(SimpleNamespace(learned_names={}), [x * (1 + 2e-7)], [x], Shape((2, 3), True, (3,)), 0.0, "here")
    moved = [((y / x - 1) * 2**23).flatten().round().tolist() for y in seen[1:]]
    assert moved[:2] == [[1, -1] * 3, [-1, 1] * 3]
