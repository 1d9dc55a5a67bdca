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


def app(change, more=lambda k: ({}, {}), **options):
    made = clientapp.ClientApp()

    @made.train(**options)
    def train(message, context):
        state = message.content["arrays"].to_torch_state_dict()
        change(context.node_config["partition-id"], state)
        records, numbers = more(context.node_config["partition-id"])
        found = {name: flwr.ArrayRecord(record) for name, record in records.items()}
        found |= {"arrays": flwr.ArrayRecord(state)}
        found |= {"m": flwr.MetricRecord({"num-examples": 1, "loss": 0.5, **numbers})}
        return flwr.Message(flwr.RecordDict(found), reply_to=message)

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

    misled = lambda k: ({}, {"loss": 9.0 if k in (2, 4) else 0.5})  # noqa: E731
    server = strategy(flower=QUIET)
    result = simulate(app(change, misled), server, STATE, clients=5, rounds=2)
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


def test_masks_choose_who_shares():
    def change(k, state):
        state["w"] = torch.tensor([1.0, 2.0]) * (k + 1)

    def more(k):
        return {"mask": {"w": torch.tensor([float(k == 0), 1.0])}}, {}

    result = simulate(app(change, more), strategy("fedselect", flower=QUIET), STATE, clients=3, rounds=1)
    assert torch.equal(result.arrays.to_torch_state_dict()["w"], torch.tensor([2.5, 0.0]))


@pytest.mark.parametrize("options, control", [({}, 0.5), ({"clients": 8}, 0.25)])
def test_scaffold_divides_by_all_clients_though_half_of_them_take_part(options, control):
    def more(k):
        return {"control": {name: torch.ones_like(STATE[name]) for name in "wb"}}, {}

    server = strategy("scaffold", flower={**QUIET, "fraction_train": 0.5}, **options)
    simulate(app(lambda k, state: None, more), server, STATE, clients=4, rounds=1)
    assert server.refused == {1: {}}
    assert server.memory["control"]["w"].tolist() == [control, control]


def test_a_parameter_that_is_no_entry_is_refused_before_the_first_round():
    server = strategy("fedadam", parameters=["w", "v"], flower=QUIET)
    trained = []
    with pytest.raises(ValueError, match=r"strategy: parameters must be names of the state's entries.*, not 'v'"):
        simulate(app(lambda k, state: trained.append(k)), server, STATE, clients=3, rounds=1)
    assert not trained


def test_pseudo_labels_count_by_their_number():
    def change(k, state):
        state["w"] = state["w"] + k

    def more(k):
        return {"pseudo": {"w": torch.full((2,), 10.0 * k)}}, {"pseudo-labels": k}

    server = strategy("fedlabel", flower=QUIET)
    result = simulate(app(change, more), server, STATE, clients=3, rounds=1)
    want = (1.0 + (1 * 0 + 1 * 10 + 2 * 20) / 4) / 2  # no pseudo-label counts as one
    torch.testing.assert_close(result.arrays.to_torch_state_dict()["w"], torch.full((2,), want))
    assert "pseudo-labels" not in result.train_metrics_clientapp[1]


def test_rows_of_a_classifier_count_by_class_and_a_client_that_does_not_say_is_refused():
    def change(k, state):
        state["w"] = torch.tensor([1.0, 2.0]) * (k + 1)

    def more(k):
        return {}, {"classes": [[3, 0], [1, 2], [-1, 2]][k]} if k < 3 else {}

    server = strategy("fedloge", classifier=["w"], flower=QUIET)
    result = simulate(app(change, more), server, STATE, clients=4, rounds=1)
    torch.testing.assert_close(result.arrays.to_torch_state_dict()["w"], torch.tensor([(3 * 1.0 + 1 * 2.0) / 4, 4.0]))
    assert len(server.refused[1]) == 2
    assert all("its classes is" in why for why in server.refused[1].values())


def test_a_personal_model_stays_with_its_client():
    made, seen = clientapp.ClientApp(), {}

    @made.train(mods=[keep_local(records=["personal"])])
    def train(message, context):
        k = context.node_config["partition-id"]
        there = message.content.array_records.get("personal")
        own = torch.zeros(1) if there is None else there.to_torch_state_dict()["v"]
        seen.setdefault(k, []).append(float(own))
        records = {"arrays": message.content["arrays"], "personal": flwr.ArrayRecord({"v": own + k + 1})}
        numbers = flwr.MetricRecord({"num-examples": 1})
        return flwr.Message(flwr.RecordDict({**records, "m": numbers}), reply_to=message)

    server = strategy("apfl", flower=QUIET)
    simulate(made, server, STATE, clients=2, rounds=3)
    assert seen == {0: [0, 1, 2], 1: [0, 2, 4]}
    assert not any(server.refused.values())
