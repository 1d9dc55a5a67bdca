"""A server's round: who is refused and why, and what becomes of the others' states."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import normkit as nk
from normkit.federated import _states, keep_local, plans, servers, strategy
from normkit.federated.plans import PLANS, learned
from normkit.federated.rounds import Extras, Instructions, Update, accept, average
from normkit.federated.strategies import fedloge
from normkit.ops import paths
from normkit.ops.sums import in_type

SENT = {"w": torch.ones(4), "n": torch.tensor(3)}


def refusals(*arguments):
    return accept(*arguments)[1]


def near(seed, count=5, **changed):
    noise = torch.randn(4, generator=torch.Generator().manual_seed(seed))
    return Update({"w": torch.ones(4) + 0.1 * noise, "n": torch.tensor(3 + seed), **changed}, count)


GOOD = {name: near(seed) for seed, name in enumerate("abc")}


@pytest.mark.parametrize(
    "bad, why",
    [
        (near(5, w=torch.tensor([1.0, math.nan, 0.0, 0.0])), "w has NaN or infinities"),
        (near(5, w=torch.tensor([1.0, math.inf, 0.0, 0.0])), "w has NaN or infinities"),
        (near(5, w=torch.ones(5)), r"w has shape (5,), but (4,) was sent"),
        (near(5, v=torch.ones(4)), "its entries differ from those sent in v"),
        (near(5, w=torch.ones(4, dtype=torch.int64)), "w is of torch.int64, but torch.float32 was sent"),
        (near(5, w=1e6 * near(5).state["w"]), "is taken"),
        (near(5, count=0), "its number of examples is 0, not above 0"),
        (near(5, count=math.nan), "its number of examples is nan, not above 0"),
        (near(5, count="many"), "its number of examples is many, not above 0"),
    ],
)
def test_a_client_that_cannot_be_used_is_named_and_the_others_are_taken(bad, why):
    refused = refusals({**GOOD, "bad": bad}, SENT, 1e3)
    assert list(refused) == ["bad"]
    assert why in refused["bad"]
    assert refusals({"bad": bad}, SENT, 1e3).keys() == {"bad"}


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3), np.float32(3)])
def test_a_count_is_a_number_of_any_kind(number):
    update = Update({"w": torch.ones(2)}, number, numbers={"pseudo-labels": number})
    taken, refused = accept({"a": update}, {"w": torch.zeros(2)}, 1e3, Extras(numbers=("pseudo-labels",)))
    assert len(taken) == 1
    assert not refused


def test_what_is_usual_is_taken():
    assert refusals(GOOD, SENT, 3.0) == {}
    assert refusals({"still": Update(SENT, 1)}, SENT, 2.0) == {}
    zeros = {"w": torch.zeros(3)}
    assert (
        refusals({k: Update({"w": torch.full((3,), v)}, 1) for k, v in zip("ab", (0.1, 0.2), strict=True)}, zeros, 3)
        == {}
    )


def test_the_average_is_that_of_the_samples_whatever_the_order():
    updates = [near(seed, count) for seed, count in enumerate((1, 2, 5))]
    found = average(updates, SENT)
    want = sum(u.samples * u.state["w"].double() for u in updates) / 8
    torch.testing.assert_close(found["w"], want.float())
    assert found["n"] == round((1 * 3 + 2 * 4 + 5 * 5) / 8)
    for name, value in average(updates[::-1], SENT).items():
        assert torch.equal(value, found[name])
    for name, value in average(updates[:1], SENT).items():
        assert torch.equal(value, updates[0].state[name])


def test_an_average_in_blocks_is_the_mean_to_the_bit():
    chance = torch.Generator().manual_seed(0)
    states = [torch.randn(3, _states.BLOCK // 2 + 7, generator=chance) for _ in range(4)]
    states[3][0, :100] = states[2][0, :100]  # such as begin alike are told apart by their sums
    counts = torch.tensor([1.0, 2.0, 3.0, 3.0], dtype=torch.float64)
    want = in_type(_states.mean(torch.stack(states), counts), states[0])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        assert torch.equal(_states.average([states[k] for k in order], counts[order]), want)
    whole = [torch.tensor([[1, 2]]), torch.tensor([[2, 2]])]
    assert _states.average(whole, torch.tensor([1.0, 3.0])).tolist() == [[2, 2]]
    assert _states.average([torch.empty(0), torch.empty(0)], counts[:2]).shape == (0,)


def test_whole_states_that_begin_alike_are_put_in_an_order_by_what_differs():
    chance = torch.Generator().manual_seed(0)
    frozen, sent = torch.randn(_states.BLOCK + 9, generator=chance), torch.zeros(_states.BLOCK + 70)
    states = [{"a": frozen, "b": torch.randn(len(sent), generator=chance)} for _ in range(5)]
    for state in states[1:]:
        state["b"][: _states.SEEN] = states[0]["b"][: _states.SEEN]  # the beginnings of all entries are equal
    states[3]["b"][: _states.BLOCK] = states[2]["b"][: _states.BLOCK]
    updates = [Update(state, 3) for state in states]
    want = average(updates, {"a": frozen, "b": sent})
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        found = average([updates[k] for k in order], {"a": frozen, "b": sent})
        assert torch.equal(found["b"], want["b"])
        assert torch.equal(found["a"], want["a"])


def test_entries_that_have_moved_go_where_most_clients_share_from_the_second_round_on():
    updates, memory = [near(seed) for seed in range(4)], {}
    changes = torch.stack([update.state["w"] - SENT["w"] for update in updates])
    [shared] = nk.principal_gradient(changes, entries=("w",), share=0.5)
    assert (shared - changes.mean(0)).abs().max() > 1e-3
    for change in (changes.mean(0), shared):
        found = servers.principal(updates, SENT, memory=memory, share=0.5)
        torch.testing.assert_close(found["w"], SENT["w"] + change)


def test_a_round_goes_through_the_states_once_and_again_only_where_a_client_is_refused():
    bad = near(5, w=torch.tensor([1.0, math.nan, 0.0, 0.0]))
    with paths.watch() as seen:
        found, refused = accept(GOOD, SENT, 1e3)
        made = average(found, SENT)
    assert refused == {}
    assert [path.op for path in seen].count("weighted") == len(SENT)
    assert all(torch.equal(value, average(list(GOOD.values()), SENT)[name]) for name, value in made.items())
    made["v"] = made.pop("w")
    assert average(found, SENT).keys() == SENT.keys()
    found, refused = accept({"bad": bad, **GOOD}, SENT, 1e3)
    assert list(refused) == ["bad"]
    assert found.average is None
    assert all(
        torch.equal(value, average(list(GOOD.values()), SENT)[name]) for name, value in average(found, SENT).items()
    )


def test_what_is_finite_and_too_large_to_be_squared_is_refused_by_its_distance():
    sent = {"w": torch.ones(4, dtype=torch.float64)}
    near = {name: Update({"w": torch.full((4,), 1.0 + k, dtype=torch.float64)}, 2) for k, name in enumerate("abc")}
    found = refusals({**near, "far": Update({"w": torch.full((4,), 1e200, dtype=torch.float64)}, 2)}, sent, 1e3)
    assert found == {"far": "it is inf from what was sent, and at most 2e+03 is taken"}


def test_the_server_learns_to_leave_out_a_client_that_is_wrong():
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    true = torch.tensor([1.0, -2.0, 0.5, 3.0])
    updates = [Update({"w": sign * true, "n": torch.tensor(k)}, 10) for k, sign in enumerate((1.0, 1.0, -1.0))]

    def loss(state, batch):
        assert "n" in state
        return F.mse_loss(batch @ state["w"].to(batch), batch @ true)

    batches = [part.double() for part in x.split(16)]
    true = true.double()
    options = {"loss": loss, "batches": batches, "parameters": ["w"], "lr": 0.1, "epochs": 30}
    found = learned(updates, SENT, **options)
    start = average(updates, SENT)
    assert loss(found, x.double()) < 0.05 * loss(start, x.double())
    assert found["n"] == 1


@pytest.mark.parametrize(
    "arguments, error, word",
    [
        ({"method": "fedlww"}, ValueError, "did you mean 'fedlaw'"),
        ({"method": "margin-log-loss"}, ValueError, "a part of 'fedld': take that for the server, and nk.create"),
        ({"method": "fedlaw"}, TypeError, "needs loss, batches, parameters"),
        ({"method": "fedbn"}, ValueError, "needs local entries"),
        ({"local": ["w"]}, ValueError, "takes no local entries"),
        ({"method": "fedbn", "local": "w"}, TypeError, r"local must be a list of names, \['w'\]"),
        ({"lr": 0.1}, TypeError, "does not take lr"),
        ({"most": 0.5}, ValueError, "most must lie in"),
        ({"method": "fedbn", "local": iter([])}, ValueError, "needs local entries"),
        (
            {"method": "fedlaw", "loss": F.mse_loss, "batches": iter([1]), "parameters": ["w"]},
            TypeError,
            "strategy: batches must be a list or a loader, which can be gone over again, not an iterator",
        ),
        ({"method": "fedadam", "parameters": iter(["w"])}, TypeError, "strategy: parameters must be a list"),
        ({"method": "pgfed", "parameters": "w"}, TypeError, r"strategy: parameters must be a list of names, \['w'\]"),
        ({"method": "fedloge", "classifier": "w"}, TypeError, r"classifier must be a list of names, \['w'\], not 'w'"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(arguments, error, word):
    with pytest.raises(error, match=word):
        strategy(**arguments)


@pytest.mark.parametrize("name", ["parameters", "classifier"])
def test_names_that_are_no_entries_of_the_state_are_refused_before_the_first_round(name):
    plans.check_names({name: ["w"], "lr": 0.1}, SENT)
    with pytest.raises(ValueError, match=rf"strategy: {name} must be names of the state's entries.*'n'.*, not 'v'"):
        plans.check_names({name: ["w", "v"], "lr": 0.1}, SENT)


@pytest.mark.parametrize("name", ["local", "records"])
def test_a_client_keeps_entries_by_their_names_and_not_by_letters(name):
    with pytest.raises(TypeError, match=rf"keep_local: {name} must be a list of names, \['norm.weight'\]"):
        keep_local(**{name: "norm.weight"})


def test_every_method_of_the_room_is_a_part_of_a_strategy_or_of_an_audit():
    parts = [part for plan in PLANS.values() for part in plan.parts]
    assert sorted(parts) == sorted({*nk.methods(room="federated")} - {"disparity-decomposition", "fairness-frontier"})


@pytest.mark.parametrize(
    "method, more, numbers, why",
    [
        ("fedselect", {}, {}, "it sends no mask"),
        ("fedselect", {"mask": {"w": torch.full((4,), 0.5)}}, {}, "other numbers than 0 and 1"),
        ("fedselect", {"mask": {"v": torch.ones(4)}}, {}, "mask v is no entry"),
        ("fedselect", {"mask": {}}, {}, "its mask is {}, not {'w': (4,)}"),
        ("fedlabel", {"pseudo": {"w": torch.full((4,), math.inf)}}, {"pseudo-labels": 1}, "has NaN or infinities"),
        ("fedlabel", {"pseudo": {}}, {"pseudo-labels": -1}, "its pseudo-labels is -1"),
        ("fedloge", {}, {"classes": [1, 2, 3]}, "its classes has 3 numbers, not 2"),
        ("fedloge", {}, {"classes": 3}, "its classes is a number"),
        ("pgfed", {"gradient": {"w": torch.ones(4)}}, {"risk": math.nan, "alpha": []}, "its risk is nan"),
        ("pgfed", {"gradient": {}}, {"risk": 1.0, "alpha": []}, "its gradient lacks w"),
        ("pgfed", {"gradient": {"w": 1e6 * torch.ones(4)}}, {"risk": 1.0, "alpha": []}, "its gradient is 2e+06 from 0"),
        ("pgfed", {"gradient": {"w": torch.ones(4)}}, {"risk": 1.0, "alpha": [1.0]}, "its alpha is [1.0], not 0"),
        ("fedlog", {"prototypes": {"features": torch.ones(2, 1, 4)}}, {"class-rate": [1, 2]}, "it sends no generator"),
        ("scaffold", {"control": {}}, {}, "its control is {}, not {'w': (4,)}"),
        ("scaffold", {"control": {"v": torch.ones(4)}}, {}, "control v is no entry"),
        (
            "fedlog",
            {"prototypes": {"features": torch.ones(3, 1, 4)}, "generator": {}},
            {"class-rate": [1, 2]},
            "its prototypes is {'features': (3, 1, 4)}, not {'features': (2, 1, 4)}",
        ),
    ],
)
def test_a_client_that_lacks_what_its_method_declares_is_named(method, more, numbers, why):
    ones, features = {"w": torch.ones(4)}, {"features": torch.ones(2, 1, 4)}
    sound = {"mask": ones, "pseudo": {}, "gradient": ones, "prototypes": features, "generator": {}, "control": ones}
    numbered = {"pseudo-labels": 2, "classes": [1, 2], "risk": 0.5, "alpha": [], "class-rate": [0.5, 0.5]}
    updates = {name: good._replace(more=sound, numbers=numbered) for name, good in GOOD.items()}
    updates["bad"] = GOOD["a"]._replace(more=more, numbers=numbers)
    options = {"parameters": ["w"]} if method == "pgfed" else {}
    refused = refusals(updates, SENT, 1e3, PLANS[method].wanted, {}, options)
    assert list(refused) == ["bad"]
    assert why in refused["bad"]


def test_fedadam_has_the_moments_of_a_constant_way():
    """Of the same way d in every round m is d (1 - b1^n), and v is b2^n tau^2 + (1 - b2^n) d^2."""
    way, options = torch.tensor([0.5, -2.0]), {"parameters": ["w"], "lr": 0.3, "beta1": 0.8, "beta2": 0.95, "tau": 0.1}
    memory, state, want = {}, {"w": torch.zeros(2), "n": torch.tensor(3)}, torch.zeros(2).double()
    for n in range(1, 6):
        updates = [Update({"w": state["w"] + (1 + off) * way, "n": torch.tensor(5)}, 2) for off in (-0.5, 0.5)]
        state = PLANS["fedadam"].together(updates, state, memory, options)
        m = way.double() * (1 - 0.8**n)
        v = 0.95**n * 0.01 + (1 - 0.95**n) * way.double().square()
        want = want + 0.3 * m / (v.sqrt() + 0.1)
        torch.testing.assert_close(state["w"].double(), want, rtol=1e-6, atol=1e-7)
        assert state["n"] == 5
    with pytest.raises(ValueError, match="fedadam: tau must lie in"):
        PLANS["fedadam"].together(updates, state, memory, {**options, "tau": 0.0})


BOWLS = ((1.0, 3.0), (10.0, -1.0))  # a and b of a/2 (w - b)^2
MINIMUM = sum(a * b for a, b in BOWLS) / sum(a for a, _ in BOWLS)


def descended(method, rounds=400, steps=5, rate=0.05, **options):
    """What clients with unlike bowls come to, each taking several steps a round."""
    plan, memory, kept, state = PLANS[method], {}, [{} for _ in BOWLS], {"w": torch.zeros(1, dtype=torch.float64)}
    for _ in range(rounds):
        updates = []
        for k, (a, b) in enumerate(BOWLS):
            w, mean, more = {"w": state["w"].clone()}, torch.zeros(1, dtype=torch.float64), {}
            for _ in range(steps):
                gradient = a * (w["w"] - b)
                mean += gradient / steps
                push = plan.local.push(w, state, memory, kept[k], **options)["w"] if plan.local else 0
                w = {"w": w["w"] - rate * (gradient + push)}
            if plan.local and plan.local.ended:
                before, control = kept[k].get("w", 0), memory.get("control", {}).get("w", 0)
                kept[k], more = plan.local.ended({"w": mean}, kept[k], **options)
                torch.testing.assert_close(kept[k]["w"], before - control + (state["w"] - w["w"]) / (steps * rate))
            updates.append(Update(w, 1, more))
        state = plan.together(updates, state, memory, options)
    return state["w"].item()


def test_scaffold_comes_to_the_minimum_of_all_where_an_average_does_not():
    assert abs(descended("average") - MINIMUM) > 0.1
    assert descended("scaffold") == pytest.approx(MINIMUM, abs=1e-8)


def test_scaffolds_control_is_that_of_all_whatever_the_order():
    chance, found = torch.Generator().manual_seed(0), []
    changes = [{"control": {"w": torch.randn(90, generator=chance, dtype=torch.float64)}} for _ in range(3)]
    for order in ((0, 1, 2), (2, 0, 1)):
        memory = {}
        updates = [Update({"w": torch.zeros(90)}, 1, changes[k]) for k in order]
        PLANS["scaffold"].together(updates, {"w": torch.zeros(90)}, memory, {"clients": 6})
        found.append(memory["control"]["w"])
    torch.testing.assert_close(found[0], sum(each["control"]["w"] for each in changes) / 6)
    assert torch.equal(*found)


@pytest.mark.parametrize("memory", [{}, {"control": {"w": torch.zeros(2, dtype=torch.float64)}}])
def test_scaffolds_control_is_the_mean_over_all_clients_that_were_ever_seen(memory):
    def take_part(changes, **options):
        more = {k: {"control": {"w": torch.full((2,), change)}} for k, change in changes.items()}
        updates = [Update({"w": torch.zeros(2)}, 1, each, client=k) for k, each in more.items()]
        PLANS["scaffold"].together(updates, {"w": torch.zeros(2)}, memory, options)
        return memory["control"]["w"].tolist()

    assert take_part({"a": 4.0, "b": 2.0}) == [3.0, 3.0]
    assert take_part({"c": 5.0, "d": 1.0}) == [3.0, 3.0]
    assert take_part({"a": 8.0, "d": 0.0}) == [5.0, 5.0]
    assert take_part({"a": 4.0, "b": 0.0}, clients=8) == [3.0, 3.0], "of these, others have sent nothing yet"
    with pytest.raises(ValueError, match="scaffold: clients must be at least 2"):
        take_part({"a": 4.0, "b": 0.0}, clients=1)


def test_a_stronger_term_of_fedprox_comes_nearer_to_the_minimum_of_all():
    """Where a client's own steps have ended it lies between its bowl and what was sent, at (a b + mu s) / (a + mu)."""
    far = [abs(descended("fedprox", mu=mu) - MINIMUM) for mu in (0.0, 5.0, 9.0)]
    assert far[0] == pytest.approx(abs(descended("average") - MINIMUM))
    assert far[0] > far[1] > far[2]
    shares = [(a / (a + 4.0), b) for a, b in BOWLS]
    want = sum(share * b for share, b in shares) / sum(share for share, _ in shares)
    assert descended("fedprox", rounds=60, steps=300, mu=4.0) == pytest.approx(want)


def test_pgfed_sends_each_client_what_the_others_lost_without_flower():
    sent, memory = {"w": torch.zeros(2)}, {}
    updates = [
        Update({"w": torch.full((2,), float(k))}, 1, {"gradient": {"w": torch.ones(2)}}, {"risk": k, "alpha": []}, k)
        for k in (2, 0, 1)
    ]
    servers.personal(updates, sent, memory=memory, parameters=("w",), mu=0.5)
    records, numbers = servers.of_the_others(memory, 1)
    assert numbers == {"risks": [0.0, 0.5, 1.0], "alpha": [1 / 3] * 3}
    torch.testing.assert_close(records["auxiliary"]["w"], torch.full((2,), 0.5))
    assert servers.of_the_others(memory, 7) == Instructions()


def test_fedtiny_joins_the_layers_of_all_candidates_and_takes_them_apart_without_flower():
    chance = torch.Generator().manual_seed(0)
    names = {"a.running_mean": (3,), "b.running_mean": (2, 2), "a.running_var": (3,), "b.running_var": (2, 2)}
    draws = [{name: torch.rand(2, *shape, generator=chance) for name, shape in names.items()} for _ in range(3)]
    updates = [Update({}, 1 + k, {"statistics": draw}, {"losses": [1.0, k]}, k) for k, draw in enumerate(draws)]
    candidates, memory = [{name: torch.zeros(shape) for name, shape in names.items()}] * 2, {}
    servers.merge(updates, memory, candidates=candidates)
    for name in ("a.running_mean", "b.running_mean"):
        want = sum(draw[name] * share for draw, share in zip(draws, (1 / 6, 2 / 6, 3 / 6), strict=True))
        torch.testing.assert_close(memory["statistics"][name], want)
    servers.choose(updates[:2], memory)
    assert memory["best"] == 1
    assert servers.pick_candidate({}, memory, candidates=candidates)["b.running_var"].shape == (2, 2)


def test_ggeur_takes_a_client_that_lacks_a_class_and_so_its_mean():
    def update(client, counts):
        each = [torch.randn(count, 3, generator=torch.Generator().manual_seed(client)) for count in counts]
        mean, covariance = torch.stack([x.mean(0) for x in each]), torch.stack([x.mT @ x / len(x) for x in each])
        stats = {"mean": mean, "covariance": covariance, "count": torch.tensor(counts)}
        return Update({}, 1, {"statistics": stats}, client=client)

    [ask], memory = PLANS["ggeur"].asks, {}
    updates = {0: update(0, [4, 0]), 1: update(1, [3, 5])}
    assert updates[0].more["statistics"]["mean"][1].isnan().all()
    usable, refused = accept(updates, {}, 1e3, ask.wanted, memory)
    assert refused == {}
    ask.take(usable, memory)
    torch.testing.assert_close(memory["pooled"]["mean"][1], updates[1].more["statistics"]["mean"][1])
    assert all(mean.isfinite().all() for mean, count in memory["means"].values())
    updates[1].more["statistics"]["mean"][0] = math.nan  # of a class that it has
    assert "has NaN" in refusals(updates, {}, 1e3, ask.wanted, memory)[1]


def test_fedloge_joins_the_rows_of_a_bias_and_of_a_matrix_by_their_classes():
    def update(number, classes):
        state = {"w": number * torch.ones(2, 3), "b": number * torch.ones(2)}
        return GOOD["a"]._replace(state=state, samples=4, numbers={"classes": classes})

    sent = {"w": torch.zeros(2, 3), "b": torch.zeros(2)}
    joined = fedloge.by_class([update(1.0, [3, 0]), update(2.0, [1, 2])], sent, classifier=["w", "b"])
    want = torch.tensor([(3 * 1.0 + 1 * 2.0) / 4, 2.0])
    torch.testing.assert_close(joined["b"], want)
    torch.testing.assert_close(joined["w"], want[:, None].expand(2, 3).contiguous())


def test_fedloge_weighs_by_shares_that_are_no_whole_numbers_without_rounding_them():
    state = {"w": torch.ones(1, 1, dtype=torch.float64)}
    updates = [
        GOOD["a"]._replace(state={"w": number * state["w"]}, samples=share, numbers={"classes": [1]})
        for number, share in ((1.0, 0.1), (2.0, 0.3))
    ]
    joined = fedloge.by_class(updates, state, classifier=["w"])
    assert joined["w"].item() == pytest.approx(1.75, abs=1e-14)
