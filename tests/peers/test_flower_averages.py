"""Flower's average of clients beside ours, and what its own tests ask of an aggregate."""

import importlib.util

import numpy as np
import pytest
import torch

from normkit.federated.rounds import Update
from normkit.federated.rounds import average as average_updates
from normkit.surgery.statistics.federated import average

if importlib.util.find_spec("flwr") is None:  # .ci/run has a folder for it
    pytest.skip("flwr wants other versions than the rest of the tests", allow_module_level=True)

import flwr.app as flwr
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

SAMPLES = {"alike": (1, 1, 1), "unlike": (1, 2, 5), "few and many": (1, 10**6, 3), "alone": (7,)}


def states(count):
    draw = torch.Generator().manual_seed(0)
    shapes = {"weight": (4, 3), "bias": (4,), "scale": ()}
    return [
        {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def flowers(clients, samples):
    records = [
        flwr.RecordDict({"arrays": flwr.ArrayRecord(state), "metrics": flwr.MetricRecord({"num-examples": count})})
        for state, count in zip(clients, samples, strict=True)
    ]
    return {name: array.numpy() for name, array in aggregate_arrayrecords(records, "num-examples").items()}


@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES)
def test_averages_by_samples_are_flowers(samples):
    clients = states(len(samples))
    want = flowers(clients, samples)
    ours = average(clients, samples)
    of_a_round = average_updates(
        [Update(state, count) for state, count in zip(clients, samples, strict=True)], clients[0]
    )
    for name, value in want.items():
        for found in (ours, of_a_round):
            np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-12, atol=1e-14)


def test_a_half_precision_average_is_flowers_of_the_same_numbers_in_double():
    clients = [{name: value.to(torch.bfloat16) for name, value in state.items()} for state in states(3)]
    want = flowers([{name: value.double() for name, value in state.items()} for state in clients], (1, 2, 5))
    for name, value in average(clients, (1, 2, 5)).items():
        assert value.dtype == torch.bfloat16
        assert torch.equal(value, torch.from_numpy(want[name]).to(torch.bfloat16))


def test_whole_numbers_are_rounded_which_flower_leaves_as_fractions():
    clients = [{"count": torch.tensor(value)} for value in (3, 4, 4)]
    assert flowers(clients, (1, 1, 1))["count"] == pytest.approx(11 / 3)
    assert average(clients, (1, 1, 1))["count"] == 4
