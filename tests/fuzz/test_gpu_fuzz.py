"""The GPU's kernels, run by Triton's interpreter, on random calls: each held to bounds that the call itself gives."""

import itertools

import pytest

from normkit.kernels import cuda
from place import ON_GPU, forget_plans, kernels

from .cases import drawn
from .judge import judge

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
SMALL = 500  # entries of a case: the interpreter takes a millisecond for what a GPU does in none
TIMES = 2 if ON_GPU else 1  # as many cases


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


def small_cases(op, count, seed, small):
    """The numbers of the first cases that are small; on a GPU each is."""
    numbers = itertools.count()
    small_ones = (n for n in numbers if ON_GPU or drawn(n, seed, op).tensors["x"].numel() <= small)
    return list(itertools.islice(small_ones, TIMES * count))


def judged(op, count, seed, small=SMALL):
    """How many cases a kernel took part in; all of them right."""
    with kernels():
        verdicts = {number: judge(number, seed, op) for number in small_cases(op, count, seed, small)}
    wrong = {number: found for number, (found, _) in verdicts.items() if found}
    assert not wrong
    return sum(by_kernel for _, by_kernel in verdicts.values())


@pytest.mark.parametrize("op", ["row_norm", "add_row_norm", "layer_norm", "rms_norm"])
def test_random_calls_are_within_the_bounds_that_each_gives(op):
    assert judged(op, 25, 3) > 8


@pytest.mark.parametrize("op", ["dyt", "derf", "eln", "rotate", "norm_rotate", "sinkhorn"])
def test_random_calls_of_what_is_no_row_alone_too(op):
    assert judged(op, 20, 3) > 5


CHANNELS = ["batch_norm", "normalize_with", "group_norm", "instance_norm", "layer_norm2d"]
CHANNELS += ["global_response_norm", "filter_response_norm", "evonorm_s", "online_norm"]


@pytest.fixture
def in_pieces(monkeypatch):
    """Tiles of channels of 64 entries, at most three of them a program."""
    from normkit.kernels.cuda import settings

    forget_plans()
    for name in ("TILE", "LINE", "LAST", "POSITIONS"):
        monkeypatch.setattr(settings, name, 64)
    monkeypatch.setattr(settings, "CHANNELS", 4)
    monkeypatch.setattr(settings, "FILLING", 1)
    monkeypatch.setattr(settings, "FILLING_LAST", 1)
    monkeypatch.setattr(settings, "WHOLE", 0)
    monkeypatch.setattr(settings, "MOST_STEPS", 3)
    yield
    forget_plans()


@pytest.mark.parametrize("op", CHANNELS)
def test_random_calls_of_channels_in_many_pieces(op, in_pieces):
    assert judged(op, 6, 5, small=120) > 0


@pytest.mark.parametrize("number", [1, 9])
def test_running_moments_of_a_long_memory_keep_their_digits(number, in_pieces):
    """A GPU gets a decay in float32, and what it leaves of 1 would have few digits."""
    with kernels():
        assert judge(number, 5, "online_norm") == ([], True)


@pytest.mark.parametrize("op", ["row_norm", "add_row_norm"])
def test_rows_that_are_walked_along_are_within_the_same_bounds(op, walked):
    assert judged(op, 8, 4) > 2


@pytest.mark.parametrize("op", ["group_norm", "instance_norm", "filter_response_norm", "evonorm_s"])
def test_random_calls_of_units_that_a_program_holds(op):
    assert judged(op, 6, 7, small=200) > 0
