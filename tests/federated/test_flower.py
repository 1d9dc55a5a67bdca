"""The room on Flower, where that is installed: clients in this process, some of whom misbehave."""

import importlib.util
import os

import pytest
import torch

from normkit.federated import keep_local, simulate, strategy

if importlib.util.find_spec("flwr") is None:  # .ci/run has a folder for it
    pytest.skip("flwr wants other versions than the rest of the tests", allow_module_level=True)

import flwr.app as flwr
from flwr import clientapp

STATE = {"w": torch.zeros(2), "b": torch.zeros(1), "n": torch.tensor(3)}
QUIET = {"fraction_evaluate": 0.0}


def app(change, **options):
    made = clientapp.ClientApp()

    @made.train(**options)
    def train(message, context):
        state = message.content["arrays"].to_torch_state_dict()
        change(context.node_config["partition-id"], state)
        numbers = flwr.MetricRecord({"num-examples": 1, "loss": 0.5})
        return flwr.Message(flwr.RecordDict({"arrays": flwr.ArrayRecord(state), "m": numbers}), reply_to=message)

    return made


def test_clients_that_misbehave_are_left_out_and_the_rounds_go_on():
    def change(k, state):
        state["w"] = state["w"] + k + 1
        state["n"] = state["n"] + 1
        if k == 2:
            state["w"][0] = torch.nan
        if k == 3:
            raise RuntimeError("the disk is full")
        if k == 4:
            state["w"] = state["w"] * 1e6

    server = strategy(flower=QUIET)
    result = simulate(app(change), server, STATE, clients=5, rounds=2)
    found = result.arrays.to_torch_state_dict()
    assert torch.equal(found["w"], torch.tensor([3.0, 3.0]))  # 1.5 a round, the mean of two
    assert found["n"] == 5
    assert found["n"].dtype == torch.int64
    for refused in server.refused.values():
        assert sorted(why.split()[-1] for why in refused.values()) == ["infinities", "taken"]
    assert result.train_metrics_clientapp[2] == {"loss": 0.5, "refused": 2}
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"


def test_local_entries_stay_with_their_client_between_rounds():
    seen = {}

    def change(k, state):
        seen.setdefault(k, []).append(float(state["b"]))
        state["b"] = state["b"] + k + 1
        state["w"] = state["w"] + 1

    server = strategy("fedbn", local=["b"], flower=QUIET)
    result = simulate(app(change, mods=[keep_local(["b"])]), server, STATE, clients=3, rounds=3)
    assert seen == {0: [0, 1, 2], 1: [0, 2, 4], 2: [0, 3, 6]}
    found = result.arrays.to_torch_state_dict()
    assert torch.equal(found["w"], torch.tensor([3.0, 3.0]))
    assert found["b"] == 0


def test_a_round_without_anybody_leaves_the_state():
    def change(k, state):
        state["w"] = state["w"] * torch.nan

    result = simulate(app(change), strategy(flower=QUIET), STATE, clients=2, rounds=1)
    assert torch.equal(result.arrays.to_torch_state_dict()["w"], STATE["w"])
