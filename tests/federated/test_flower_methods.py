"""Methods whose servers remember, ask before the first round, or tell each client something else, on Flower."""

import importlib.util
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import normkit as nk
from normkit.federated import disparity, keep_local, simulate, strategy

if importlib.util.find_spec("flwr") is None:  # .ci/run has a folder for it
    pytest.skip("flwr wants other versions than the rest of the tests", allow_module_level=True)

import flwr.app as flwr
from flwr import clientapp

QUIET = {"fraction_evaluate": 0.0}
LINEAR = {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}


def samples(k, number=24):
    """Two classes of points (N, 3), which lie elsewhere for each client."""
    chance = torch.Generator().manual_seed(k)
    y = torch.arange(number) % 2
    return torch.randn(number, 3, generator=chance) + torch.tensor([2.0, 0.0, 0.5 * k]) * y[:, None], y


def linear(state, x):
    return F.linear(x, state["weight"], state["bias"])


def descended(state, objective, steps=20, lr=0.2):
    state = {name: value.detach().clone().requires_grad_() for name, value in state.items()}
    for _ in range(steps):
        found = torch.autograd.grad(objective(state), list(state.values()))
        with torch.no_grad():
            for value, slope in zip(state.values(), found, strict=True):
                value -= lr * slope
    return {name: value.detach() for name, value in state.items()}


def records(message):
    return {name: record.to_torch_state_dict() for name, record in message.content.array_records.items()}


def reply(message, arrays, numbers):
    found = {name: flwr.ArrayRecord(state) for name, state in arrays.items()}
    metrics = flwr.MetricRecord({"num-examples": 24, **numbers})
    return flwr.Message(flwr.RecordDict({**found, "metrics": metrics}), reply_to=message)


def app(train, **options):
    """A client whose ``train(k, records, message)`` returns records and numbers."""
    made = clientapp.ClientApp()

    @made.train(**options)
    def trained(message, context):
        return reply(message, *train(context.node_config["partition-id"], records(message), message))

    return made


def right(state):
    x, y = samples(7, 200)
    return float((linear(state, x).argmax(1) == y).float().mean())


def test_fedld_takes_the_mean_first_and_then_the_directions_that_most_share():
    loss, seen = nk.create("margin-log-loss"), []

    def train(k, there, message):
        x, y = samples(k)
        state = descended(there["arrays"], lambda state: loss(linear(state, x), y))
        seen.append({name: state[name] - there["arrays"][name] for name in state})
        return {"arrays": state}, {}

    server = strategy("fedld", share=0.7, flower=QUIET)
    first = simulate(app(train), strategy("fedld", share=0.7, flower=QUIET), LINEAR, clients=4, rounds=1).arrays
    seen.clear()
    second = simulate(app(train), server, LINEAR, clients=4, rounds=2).arrays.to_torch_state_dict()
    first = first.to_torch_state_dict()
    stacked = [{name: torch.stack([change[name] for change in seen[at : at + 4]]) for name in LINEAR} for at in (0, 4)]
    for name in LINEAR:
        torch.testing.assert_close(first[name], stacked[0][name].mean(0))
        [want] = nk.principal_gradient(stacked[1][name], entries=(name,), share=0.7)
        torch.testing.assert_close(second[name], first[name] + want)
    assert (second["weight"] - first["weight"] - stacked[1]["weight"].mean(0)).abs().max() > 1e-3
    assert right(second) > 0.8


def test_pgfed_tells_each_client_of_the_others_from_its_second_round_on():
    client, seen = nk.create("pgfed-client", entries=("weight", "bias"), lr=0.2, alpha_lr=0.01), {}
    made = {}

    def train(k, there, message):
        numbers = dict(message.content["told"]) if "told" in message.content else {}
        seen.setdefault(k, []).append((there, numbers))
        x, y = samples(k)
        given = [torch.tensor(numbers[name]) for name in ("risks", "alpha")] if numbers else []
        found = client.train(
            linear,
            there["arrays"],
            [(x[:12], y[:12]), (x[12:], y[12:])],
            *(there[name] for name in ("auxiliary", "mean_gradient") if given),
            *given,
        )
        made.setdefault(k, []).append(found)
        gradient = {"weight": found.gradient["weight"]} if k == 3 else found.gradient
        return {"arrays": found.state, "gradient": gradient}, {"risk": float(found.risk), "alpha": found.alpha.tolist()}

    server = strategy("pgfed", parameters=["weight", "bias"], mu=0.1, momentum=0.5, flower=QUIET)
    result = simulate(app(train), server, LINEAR, clients=4, rounds=4)
    assert all(list(why.values()) == ["its gradient lacks bias"] for why in server.refused.values())
    assert seen[0][0][1] == seen[3][2][1] == {}  # nobody is told in its first round, nor who was refused
    assert seen[0][1][1]["alpha"] == pytest.approx([1 / 3] * 3)
    assert len(seen[0][1][1]["risks"]) == 3
    risks = [0.1 * float(made[k][0].risk) for k in range(3)]
    assert seen[0][1][1]["risks"] == pytest.approx(risks)
    first, second = (
        0.1 * sum(a * made[k][at].gradient["weight"] for k, a in enumerate(alpha))
        for at, alpha in ((0, [1 / 3] * 3), (1, made[0][1].alpha))
    )
    torch.testing.assert_close(seen[0][2][0]["auxiliary"]["weight"], (first + second) / 2)
    later = [seen[k][3] for k in range(3)]
    assert not torch.equal(later[0][0]["auxiliary"]["weight"], later[1][0]["auxiliary"]["weight"])
    assert torch.equal(later[0][0]["mean_gradient"]["weight"], later[1][0]["mean_gradient"]["weight"])
    assert all(0 < a < 1 for a in later[0][1]["alpha"])
    assert right(result.arrays.to_torch_state_dict()) > 0.75


def test_ggeur_learns_the_shape_of_each_class_and_clients_fill_up_once():
    kept, told = [keep_local(records=["filled"])], {}

    def train(k, there, message):
        x, y = samples(k)
        own = y == k % 2  # a client has samples of one class alone, but is told of both
        if "pooled" in there:
            assert k not in told
            told[k] = there
            chance = torch.Generator().manual_seed(k)
            absent = 1 - k % 2
            around = there["others"]["mean"][there["others"]["count"][:, absent] > 0, absent]
            noise = torch.randn(len(around), 6, 3, generator=chance)
            there["filled"] = {
                "x": nk.geometric_samples(around, there["pooled"]["covariance"][absent], noise).flatten(0, 1)
            }
        drawn = there["filled"]["x"]
        x, y = torch.cat([x[own], drawn]), torch.cat([y[own], torch.full((len(drawn),), 1 - k % 2)])
        state = descended(there["arrays"], lambda state: F.cross_entropy(linear(state, x), y))
        return {"arrays": state, "filled": there["filled"]}, {}

    made = app(train, mods=kept)

    @made.query("statistics")
    def statistics(message, context):
        k = context.node_config["partition-id"]
        x, y = samples(k)
        x, count = x[y == k % 2], torch.zeros(2)
        mean, covariance = torch.zeros(2, 3), torch.zeros(2, 3, 3)
        count[k % 2], mean[k % 2], covariance[k % 2] = len(x), x.mean(0), torch.cov(x.mT, correction=0)
        if k == 4:
            covariance = covariance[:1]
        return reply(message, {"statistics": {"mean": mean, "covariance": covariance, "count": count}}, {})

    server = strategy("ggeur", flower=QUIET)
    result = simulate(made, server, LINEAR, clients=5, rounds=2)
    [why] = server.refused["statistics"].values()
    assert "covariance" in why
    for label in (0, 1):
        x = torch.cat([samples(k)[0][samples(k)[1] == label] for k in range(4) if k % 2 == label])
        torch.testing.assert_close(told[0]["pooled"]["covariance"][label], torch.cov(x.mT, correction=0))
    assert told[0]["others"]["mean"].shape == (3, 2, 3)
    assert told[4]["others"]["mean"].shape == (4, 2, 3)
    assert right(result.arrays.to_torch_state_dict()) > 0.8


def test_fedlog_joins_prototypes_by_class_and_hands_generators_on():
    seen = {}

    def train(k, there, message):
        seen.setdefault(k, []).append(there)
        x, y = samples(k)
        features = torch.stack([x[y == c][:4] for c in (0, 1)])
        if "synthetic" in there:
            nodes, gamma = there["synthetic"]["features"], torch.full((2,), 0.1)
            labels = torch.arange(2).repeat_interleave(4)
            drawn = nk.fedlog_scaling(nodes.flatten(0, 1), labels, gamma, torch.ones(2)).features
            x, y = torch.cat([x, drawn]), torch.cat([y, labels])
        state = descended(there["arrays"], lambda state: F.cross_entropy(linear(state, x), y))
        rate = [0.75, 0.25] if k else [0.25, 0.75]
        arrays = {"arrays": state, "prototypes": {"features": features}, "generator": {"g": torch.full((3,), float(k))}}
        return arrays, {"class-rate": rate[: 1 if k == 3 else 2]}

    server = strategy("fedlog", flower=QUIET)
    result = simulate(app(train), server, LINEAR, clients=4, rounds=2)
    assert all("its class-rate" in why for refused in server.refused.values() for why in refused.values())
    assert "synthetic" not in seen[0][0]
    features = [torch.stack([x[y == c][:4] for c in (0, 1)]) for x, y in map(samples, range(3))]
    want = (0.25 * features[0] + 0.75 * (features[1] + features[2])) / 1.75
    torch.testing.assert_close(seen[0][1]["synthetic"]["features"][0], want[0])
    assert torch.equal(seen[0][1]["generators"]["g"], torch.arange(3.0).unsqueeze(1).expand(3, 3))
    assert right(result.arrays.to_torch_state_dict()) > 0.8


def test_fedtiny_begins_with_the_candidate_that_the_devices_like_best():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(3, affine=False), torch.nn.Linear(3, 2))
    good = {"1.weight": torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), "1.bias": torch.zeros(2)}
    plain = {name: value.clone() for name, value in net.state_dict().items()}
    candidates = [{**plain, "1.weight": -good["1.weight"]}, {**plain, **good}, plain]
    names = ["0.running_mean", "0.running_var"]
    call = partial(torch.func.functional_call, net)
    made = app(lambda k, there, message: ({"arrays": there["arrays"]}, {}))

    @made.query("statistics", mods=[keep_local(records=["candidates"])])
    def statistics(message, context):
        x, _ = samples(context.node_config["partition-id"])
        found = {names[0]: x.mean(0).expand(3, 3), names[1]: x.var(0).expand(3, 3)}
        if context.node_config["partition-id"] == 3:
            found[names[1]] = -found[names[1]]
        return reply(message, {"statistics": found, "candidates": records(message)["candidates"]}, {})

    @made.query("losses", mods=[keep_local(records=["candidates"])])
    def losses(message, context):
        x, y = samples(context.node_config["partition-id"])
        stacked = {**records(message)["candidates"], **records(message)["statistics"]}
        states = [{name: value[m] for name, value in stacked.items()} for m in range(3)]
        with torch.no_grad():
            found = [float(F.cross_entropy(call(state, (x,)), y)) for state in states]
        return reply(message, {"candidates": records(message)["candidates"]}, {"losses": found})

    net.eval()
    server = strategy("fedtiny", candidates=candidates, flower=QUIET)
    found = simulate(made, server, plain, clients=4, rounds=1).arrays.to_torch_state_dict()
    assert list(server.refused["statistics"].values()) == ["its 0.running_var is below 0"]
    assert server.memory["best"] == 1
    assert server.memory["loss"][1] == min(server.memory["loss"])
    assert torch.equal(found["1.weight"], good["1.weight"])
    torch.testing.assert_close(found["0.running_mean"], torch.stack([samples(k)[0].mean(0) for k in range(3)]).mean(0))


def test_a_question_that_nobody_answers_stops_the_run():
    with pytest.raises(RuntimeError, match="no client gave an answer to the query 'statistics'"):
        simulate(app(lambda *_: ({}, {})), strategy("ggeur", flower=QUIET), LINEAR, clients=2, rounds=1)


def test_fedlaw_learns_on_flower_to_leave_out_a_client_whose_labels_are_wrong():
    def train(k, there, message):
        x, y = samples(k)
        y = 1 - y if k == 2 else y
        return {"arrays": descended(there["arrays"], lambda state: F.cross_entropy(linear(state, x), y), 20)}, {}

    batches = [samples(9)]
    options = {"loss": lambda state, batch: F.cross_entropy(linear(state, batch[0]), batch[1]), "batches": batches}
    learned = strategy("fedlaw", **options, parameters=["weight", "bias"], lr=0.1, epochs=20, flower=QUIET)
    found, plain = (
        simulate(app(train), server, LINEAR, clients=3, rounds=2).arrays.to_torch_state_dict()
        for server in (learned, strategy(flower=QUIET))
    )
    assert options["loss"](found, batches[0]) < 0.6 * options["loss"](plain, batches[0])


def test_fedrap_sends_the_common_table_alone_and_clients_count_alike():
    torch.manual_seed(0)
    model, loss = nk.create("fedrap", 6, 2), nk.create("fedrap-loss")
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    seen = {}

    def train(k, there, message):
        items, likes = torch.arange(6), (torch.arange(6) % 2 == k % 2).float()
        seen.setdefault(k, []).append(there["arrays"])

        def objective(state):
            rating, personal, common = torch.func.functional_call(model, state, (items,))
            return loss(rating, likes, personal, common)

        return {"arrays": descended(there["arrays"], objective, lr=0.5)}, {"num-examples": 1 + k}

    local = [name for name in state if name != "common"]
    server = strategy("fedrap", local=local, flower=QUIET)
    result = simulate(app(train, mods=[keep_local(local)]), server, state, clients=2, rounds=2)
    assert torch.equal(seen[0][1]["common"], seen[1][1]["common"])
    assert not torch.equal(seen[0][1]["personal"], seen[1][1]["personal"])
    found = result.arrays.to_torch_state_dict()
    assert torch.equal(found["personal"], state["personal"])
    assert not torch.equal(found["common"], state["common"])


def test_clients_count_alike_where_the_method_says_so():
    def train(k, there, message):
        return {"arrays": {name: value + k for name, value in there["arrays"].items()}}, {"num-examples": 1 + 9 * k}

    for method, want in {"average": 10 / 11, "apfl": 0.5, "fedld": 0.5}.items():
        found = simulate(app(train), strategy(method, flower=QUIET), LINEAR, clients=2, rounds=1)
        torch.testing.assert_close(found.arrays.to_torch_state_dict()["bias"], torch.full((2,), want))


def test_disparity_gets_the_counts_of_the_clients():
    made = app(lambda k, there, message: ({"arrays": there["arrays"]}, {}))
    counts = torch.tensor([[[30.0, 10.0], [10.0, 30.0]], [[10.0, 30.0], [30.0, 10.0]]])

    @made.evaluate()
    def evaluate(message, context):
        k = context.node_config["partition-id"]
        return reply(message, {}, {"joint": counts[k].flatten().tolist(), "loss": 1.0 + k})

    server = strategy(flower={"evaluate_metrics_aggr_fn": disparity(groups=2)})
    told = simulate(made, server, LINEAR, clients=2, rounds=1).evaluate_metrics_clientapp[1]
    want = nk.disparity_decomposition(counts.double())
    assert told["loss"] == 1.5
    assert told["masked-disparity"] == pytest.approx(float(want.masked), abs=1e-9)
    assert told["local-disparity"] > 0.1 > told["global-disparity"] + 0.09
