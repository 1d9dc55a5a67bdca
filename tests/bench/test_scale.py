"""What a step asks for on many processes is counted without them."""

import runpy
from pathlib import Path

import pytest
import torch

SCALE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "scale.py"))
TINY = SCALE["Decoder"](dim=64, depth=2, hidden=96, keys=32, vocab=50)


@pytest.fixture
def group():
    yield SCALE["group"]
    torch.distributed.destroy_process_group()


def test_optimizers_of_matrices_send_them_twice(group):
    group(8)
    step, muon = SCALE["optimizer_step"], SCALE["muon"]
    numbers = sum(rows * columns for rows, columns in TINY.matrices())
    calls = step(muon("muon"), TINY, 8)
    assert [kind for kind, _ in calls] == ["exchange"] * 2
    # in bfloat16: this process' parts there and those of the matrices that it owns, or has and gets
    assert all(2 * numbers / 8 <= size < 2 * numbers / 4 for _, size in calls)
    more = step(muon("normuon"), TINY, 8)
    assert [kind for kind, _ in more] == ["exchange"] * 2 + ["all_reduce"]
    assert step(lambda groups: torch.optim.AdamW(groups, foreach=True), TINY, 8) == []


def test_norms_send_one_sum_each_way(group):
    group(16)
    norms = TINY.norms()
    assert SCALE["batch_norms"](TINY, 16) == [("all_reduce", 8 * (2 * 64 + 1))] * 2 * norms
    assert SCALE["cut_norms"]("rmsnorm")(TINY, 16) == [("all_reduce", 8 * SCALE["TOKENS"])] * 2 * norms


def test_time_is_that_of_the_slower_wire():
    network = SCALE["NETWORK"]
    assert network.seconds("gather", 8_000_000_000, 8) == pytest.approx(7e9 / network.inside + 3 * network.latency)
    assert network.seconds("all_reduce", 64_000, 64) == pytest.approx(2 * 63e3 / network.across + 12 * network.latency)
