"""Many owners of data: who has what, how a run among them goes, stops and goes on, and what is told of it."""

import pytest
import torch
from helpers import numbers
from torch.utils.data import TensorDataset

import normkit as nk
from normkit.federated import plans, rounds
from normkit.lab.files import Folder
from normkit.lab.plan import clients, data, samples, tasks
from normkit.lab.plan.plan import Run
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import figures
from normkit.lab.training import loop
from normkit.lab.training.federated import Federated

LABELS = torch.arange(200) % 4
PICTURES = data.Images(torch.randn(200, 1, 4, 4, generator=torch.Generator().manual_seed(0)), LABELS, 8, "mine")
GIVEN = {"model": "resnet:dim=4", "data": "digits", "batch": 16, "steps": 3, "log_every": 1, "eval_every": 2}


def settings(**given):
    return Settings(**{**GIVEN, "federated": True, "clients": 3, "local_steps": 2, "probe_every": 2, **given})


def run(norm="batchnorm", aggregation="average", steps=3):
    return Run(Variant(norm, norm=norm, aggregation=aggregation), 0.01, 1, "final", steps)


def trained(root, one, stop=lambda: False, **given):
    folder = Folder(root)
    folder.create()
    loop.train(one, settings(**given), str(root), stop)
    return numbers(folder.log(one.name))


def own():
    chance = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 3
    return TensorDataset(torch.randn(240, 5, generator=chance) + 2 * y[:, None], y)


def network():
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))


@pytest.mark.parametrize("split", ["even", "dirichlet:0.5", "classes:2", "looks:0.5"])
def test_every_sample_is_of_one_client_or_of_the_server(split):
    made, batches = clients.divide(PICTURES, 5, split, 1)
    server = torch.cat([images for images, _ in batches])
    parts = [client.data.images for client in made]
    assert sum(client.count for client in made) == 171  # of 200, 20 are held out, and 9 are the server's
    assert len(server) == 8
    assert len(torch.cat([*parts, server]).flatten(1).unique(dim=0)) == 179
    for client in made:
        assert torch.equal(client.classes, torch.bincount(client.data.labels, minlength=4).double() / client.count)
    again, other = (clients.divide(PICTURES, 5, split, seed)[0] for seed in (1, 2))
    assert all(torch.equal(a.data.images, b.data.images) for a, b in zip(made, again, strict=True))
    assert not all(torch.equal(a.data.images, b.data.images) for a, b in zip(made, other, strict=True))


def test_splits_are_what_they_say():
    few, _ = clients.divide(PICTURES, 4, "classes:1", 1)
    assert all((client.classes > 0).sum() <= 2 for client in few)  # a piece may reach over an end
    uneven = [float(c.classes.max()) for c in clients.divide(PICTURES, 4, "dirichlet:0.1", 1)[0]]
    alike = [float(c.classes.max()) for c in clients.divide(PICTURES, 4, "dirichlet:1000", 1)[0]]
    assert max(alike) < 0.35 < 0.6 < max(uneven)
    looks, _ = clients.divide(PICTURES, 2, "looks:0.5", 1)
    (x, y), plain = looks[0].train(1, 1), looks[0].data.train(1, 1)[0]
    gain = (x - x.mean()).norm() / (plain - plain.mean()).norm()
    torch.testing.assert_close(x, gain * plain + (x - gain * plain).mean())
    assert abs(gain - 1) > 0.01
    assert len(y) == 8
    pictures = data.Images(torch.zeros(10, 1, 4, 4), LABELS[:10], 8, "mine")
    made, _ = clients.divide(pictures, 2, "even", 1)
    assert [client.count for client in made] == [4, 3]  # of 10, 2 are held out, and one is the server's
    text = data.Tokens(torch.arange(1000), 2, 8, 2, "mine")
    parts, _ = clients.divide(text, 3, "even", 1)
    assert parts[1].data.tokens[0] == parts[0].data.tokens[-1] + 1


@pytest.mark.parametrize(
    "split, wanted",
    [
        ("dirichlet", "dirichlet:0.3"),
        ("dirichlet:0", "above 0"),
        ("dirichlet:nan", "above 0"),
        ("classes:1.5", "a whole number"),
        ("even:2", "'even'"),
        ("looks:x", "looks:0.3"),
        ("iid", "must be one of"),
    ],
)
def test_a_split_that_cannot_be_is_refused(split, wanted):
    with pytest.raises(ValueError, match=wanted):
        clients.read(split)


def test_data_that_cannot_be_divided_are_refused():
    text = data.Tokens(torch.arange(1000), 2, 8, 2, "mine")
    with pytest.raises(ValueError, match="take --split even"):
        clients.divide(text, 3, "dirichlet:1", 1)
    with pytest.raises(ValueError, match="by sample"):
        clients.divide(object(), 3, "even", 1)
    with pytest.raises(ValueError, match="too few"):
        clients.divide(PICTURES, 150, "even", 1)
    with pytest.raises(ValueError, match="--clients 1000000:"):  # at once: no division is drawn
        clients.divide(PICTURES, 10**6, "dirichlet:1", 1)


OWNED = [run("fedbn"), *(run(aggregation=name) for name in ("fedld", "fedadam", "fedprox:mu=0.5", "scaffold"))]
OWNED_IDS = ["what stays", "what a server remembers", "moments", "a term", "control variates"]


@pytest.mark.parametrize("one", OWNED, ids=OWNED_IDS)
def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path, one):
    whole = trained(tmp_path / "whole", one)
    assert whole[-1]["status"] == "done"
    asked = iter([True])
    trained(tmp_path / "cut", one, stop=lambda: next(asked, False))
    assert trained(tmp_path / "cut", one) == whole


def test_a_round_is_the_average_of_its_clients(tmp_path):
    """One step of plain descent by each client, with its own batch norms, and the mean by their samples."""
    given = settings(local_steps=1, weight_decay=0.0)
    folder = Folder(tmp_path)
    folder.create()
    one = Run(Variant("a", norm="batchnorm", optimizer="sgd:momentum=0"), 0.1, 1, "final", 3)
    training = Federated(one, given, folder, loop.make_accelerator(given))
    training._begin()
    start, rate = dict(training.server), training.rate()
    training._train_step()
    name, states = "output.weight", []
    for client in training.clients:
        model = tasks.load(given).build(one.variant, 1)
        training.task.loss(model.train(), client.train(1, 1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        weight = model.get_parameter(name)
        assert torch.equal(weight, start[name])
        states.append(weight - rate * weight.grad)
    counts = torch.tensor([client.count for client in training.clients]).double()
    want = sum(n * s.detach().double() for n, s in zip(counts, states, strict=True)) / counts.sum()
    torch.testing.assert_close(training.server[name], want.float())
    assert not torch.equal(training.server[name], start[name])


def test_batch_norms_stay_with_their_clients(tmp_path):
    given = settings()
    folder = Folder(tmp_path)
    folder.create()
    training = Federated(run("fedbn"), given, folder, loop.make_accelerator(given))
    training._begin()
    start = dict(training.server)
    training._train_step()
    name = next(name for name in training.local if name.endswith("running_mean"))
    assert torch.equal(training.server[name], start[name])
    assert len(torch.stack([kept[name] for kept in training.kept]).unique(dim=0)) == 3
    plain = sum(v.nbytes for v in start.values())
    assert training._end_of_log()["bytes_per_round"] == 6 * (plain - sum(start[n].nbytes for n in training.local))


def test_a_client_that_breaks_is_refused_and_named(tmp_path, monkeypatch):
    kept = Federated._train_client

    def broken(self, k, rate):
        found = kept(self, k, rate)
        if k == 1:
            self.plain.output.bias.data.fill_(torch.nan)
        return found

    monkeypatch.setattr(Federated, "_train_client", broken)
    folder = Folder(tmp_path)
    folder.create()
    ended = loop.train(run(), settings(), str(tmp_path))
    assert ended["status"] == "done"
    assert ended["refused"] == 3
    assert "client 1 refused: output.bias has NaN" in folder.log(run().name).read_text()


def test_batch_norms_learn_on_though_the_server_learns_between(tmp_path, monkeypatch):
    """The server's batches move its statistics, as in the authors' code, and clients train in training mode again."""
    seen, learned = [], plans.learned

    def combine(updates, sent, **given):
        found = learned(updates, sent, **given)
        seen.append((rounds.average(updates, sent), found))
        return found

    given, folder = settings(model=f"{__name__}:network", data=f"{__name__}:own"), Folder(tmp_path)
    folder.create()
    monkeypatch.setitem(plans.PLANS, "fedlaw", plans.PLANS["fedlaw"]._replace(combine=combine))
    training = Federated(run("original", "fedlaw:epochs=2"), given, folder, loop.make_accelerator(given))
    training._begin()
    training._train_step()
    [(averaged, found)] = seen
    assert not torch.equal(found["1.running_mean"], averaged["1.running_mean"])
    training.plain.eval()
    training._train_client(0, 0.01)
    assert training.plain[1].num_batches_tracked == found["1.num_batches_tracked"] + given.local_steps


def test_the_server_learns_with_the_strategys_own_function(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setitem(plans.PLANS, "fedlaw", plans.PLANS["fedlaw"]._replace(combine=spied(seen)))
    events = trained(tmp_path, run("fedbn", "fedlaw:epochs=6"))
    assert events[-1]["status"] == "done"
    assert len(seen) == 3
    assert all(before > after for before, after in seen)


def tied():
    model = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 5), torch.nn.Linear(5, 3))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize("aggregation", ["fedadam", "fedlaw:epochs=2"])
def test_a_tied_weight_goes_where_the_server_moves_it(tmp_path, aggregation):
    """A state has it by two names, and what is loaded last stays."""
    given, folder = settings(model=f"{__name__}:tied", data=f"{__name__}:own"), Folder(tmp_path)
    folder.create()
    training = Federated(run("original", aggregation), given, folder, loop.make_accelerator(given))
    training._begin()
    training._train_step()
    assert torch.equal(training.server["0.weight"], training.server["1.weight"])


def spied(seen):
    def combine(updates, sent, *, loss, batches, **rest):
        found = plans.learned(updates, sent, loss=loss, batches=batches, **rest)
        with torch.no_grad():
            seen.append(tuple(sum(float(loss(s, b)) for b in batches) for s in (rounds.average(updates, sent), found)))
        return found

    return combine


def test_the_report_tells_of_the_clients(tmp_path):
    result = nk.compare(
        federated=True,
        clients=3,
        split="dirichlet:1",
        local_steps=2,
        model=network,
        data=own,
        norms=["original", "fedbn"],
        metric="client-accuracy",
        steps=6,
        seeds=1,
        trials=1,
        engine="here",
        out=tmp_path,
    )
    rows = {row.variant: row for row in result.rows}
    assert rows["original"].sent > rows["fedbn"].sent > 0
    for row in rows.values():
        assert 0 <= row.worst.mean <= row.clients.mean == row.measured.mean <= 1
    page = result.report.read_text()
    assert "3 clients, dirichlet:1 · 6 rounds" in page
    assert "worst client" in page
    assert "from the worst to the best" in page
    for line in figures.of_clients(result.comparison)["data"]:
        assert line["x"] == [1, 2, 3]
        assert line["y"] == sorted(line["y"])
    assert "sent a round" in page


def of_two_classes():
    x, y = own().tensors
    return TensorDataset(x[y < 2][:40] + 0.1, y[y < 2][:40])


def of_no_client():
    return TensorDataset(torch.randn(8, 5), torch.full((8,), 3))


def wider():
    return torch.nn.Linear(5, 4)


OF_CLASSES = {"split": "classes:1", "data": f"{__name__}:own", "model": f"{__name__}:wider"}


def test_a_client_without_a_held_out_class_is_left_out_of_what_clients_come_to(tmp_path):
    given = {**OF_CLASSES, "val": f"{__name__}:of_two_classes", "clients": 7}
    events = trained(tmp_path, run("original"), **given)
    assert events[-1]["status"] == "done"
    made, _ = clients.divide(samples.own_data(given["data"], given["val"], 16, 2), 7, "classes:1", 1)
    silent = [k for k, client in enumerate(made) if not client.classes[:2].any()]
    assert 0 < len(silent) < 7
    for measured in (e for e in events if e["event"] == "eval"):
        assert [k for k, share in enumerate(measured["clients"]) if share is None] == silent
        shares = [share for share in measured["clients"] if share is not None]
        assert measured["client-accuracy"] == pytest.approx(sum(shares) / len(shares))
        assert measured["worst-client"] == min(shares)
        assert all(isinstance(measured[name], float) for name in ("loss", "accuracy", "client-spread"))
    text = Folder(tmp_path).log(run("original").name).read_text()
    assert text.count("no class of theirs is held out: " + ", ".join(f"client {k}" for k in silent)) == 1


def test_seeds_whose_clients_are_not_all_measured_have_one_line(tmp_path):
    given = {"model": wider, "data": own, "val": of_two_classes, "clients": 5, "split": "dirichlet:0.2"}
    result = nk.compare(
        federated=True,
        norms=["original"],
        steps=1,
        local_steps=1,
        seeds=3,
        lr=0.01,
        engine="here",
        out=tmp_path,
        **given,
    )
    counts = {
        len([s for s in r.evals[-1]["clients"] if s is not None]) for r in result.comparison.final_runs("original")
    }
    assert len(counts) > 1
    [line] = figures.of_clients(result.comparison)["data"]
    assert len(line["x"]) == len(line["y"]) == max(counts)
    assert line["y"] == sorted(line["y"])


def test_held_out_data_of_no_clients_class_are_named(tmp_path):
    events = trained(tmp_path, run("original"), **OF_CLASSES, val=f"{__name__}:of_no_client")
    assert events[-1]["status"] == "crashed"
    assert "no client has a class that is held out; change --val" in events[-1]["error"]


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({"clients": 3}, "clients is of many owners of data: give federated"),
        ({"metric": "worst-client"}, "metric is of many owners"),
        ({"norms": ["fedbn"]}, "norms fedbn is of many owners"),
        ({"federated": True, "sharded": True}, "exclude each other"),
        (
            {"federated": True, "aggregations": ["fedlww"]},
            "one of 'average', 'fedadam', 'fedbn', 'fedlaw', 'fedld', 'fedprox', 'scaffold'.*did you mean 'fedlaw'",
        ),
        ({"federated": True, "aggregations": ["fedlaw:rate=1"]}, "does not take rate"),
        ({"federated": True, "aggregations": ["fedselect"]}, "which is the strategy's alone"),
        ({"federated": True, "aggregations": ["apfl"]}, "which is the strategy's alone"),
        ({"federated": True, "aggregations": ["fedlaw:loss=1"]}, "the lab's to give"),
        ({"federated": True, "clients": 1}, "clients must be at least 2"),
        ({"federated": True, "split": "even:2"}, "'even'"),
        ({"federated": True, "norms": ["groupnorm:num_groups=4"], "aggregations": ["fedbn"]}, "the model has none"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_trained(given, wanted, tmp_path):
    with pytest.raises(ValueError, match=wanted):
        nk.compare(out=tmp_path / "out", engine="here", **given)


def test_a_part_of_a_data_set_is_trained_on_alone():
    whole = samples.own_data("test_of_owners:own", None, 8, 2)
    part = whole.part(torch.arange(10))
    assert torch.equal(part.labels, whole.labels[:10])
    seen = torch.cat([part.train(1, step)[1] for step in (1, 2)])
    assert sorted(seen.tolist()) == sorted(part.labels.tolist())


def test_a_clients_batches_are_of_one_sample_only_where_all_are():
    whole = samples.own_data("test_of_owners:own", None, 7, 2)
    made, _ = clients.divide(whole, 13, "even", 1)
    assert {client.count % 7 for client in made} == {1, 2}
    assert {len(client.train(1, step)[1]) for client in made for step in range(1, 6)} == {7, 8, 2}
    for client in made:
        epoch = torch.cat([client.train(1, step)[0] for step in range(1, -(-(client.count - 1) // 7) + 1)])
        assert len(epoch.flatten(1).unique(dim=0)) == client.count, "each sample is trained on in each epoch"
    part = whole.part(torch.arange(15))
    assert [len(part.train(1, step)[1]) for step in (1, 2, 3)] == [7, 7, 1]
    alone, _ = clients.divide(samples.own_data("test_of_owners:own", None, 1, 2), 13, "even", 1)
    assert len({tuple(alone[0].train(1, step)[0].flatten().tolist()) for step in range(1, 20)}) == alone[0].count


def begun(root, aggregation):
    """A training of plain descent by three clients, two steps a round."""
    given = settings(local_steps=2, weight_decay=0.0, clip=0.0)
    folder = Folder(root / aggregation.partition(":")[0])
    folder.create()
    variant = Variant("a", norm="batchnorm", optimizer="sgd:momentum=0", aggregation=aggregation)
    training = Federated(Run(variant, 0.1, 1, "final", 3), given, folder, loop.make_accelerator(given))
    training._begin()
    return training


def descended(training, state, first, rate, loss_of=lambda loss, model: loss, push=lambda k, name: 0.0):
    """What the clients' output weights come to by two steps of plain descent from a state."""
    ends = []
    for k, client in enumerate(training.clients):
        model = tasks.load(training.settings).build(training.run.variant, 1).train()
        model.load_state_dict(state)
        for at in (first, first + 1):
            model.zero_grad()
            loss_of(training.task.loss(model, client.train(1, at)), model).backward()
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p -= rate * (p.grad + push(k, name))
        ends.append(model.get_parameter("output.weight").detach())
    return torch.stack(ends)


def test_fedprox_is_a_term_of_each_clients_loss(tmp_path):
    training = begun(tmp_path, "fedprox:mu=0.7")
    start = {name: value.clone() for name, value in training.server.items()}

    def loss_of(loss, model):
        return loss + 0.35 * sum((p - start[name]).square().sum() for name, p in model.named_parameters())

    rate = training.rate()
    training._train_step()
    ends = descended(training, start, 1, rate, loss_of)
    shares = torch.tensor([client.count for client in training.clients]).double()
    want = torch.tensordot(shares / shares.sum(), ends.double(), 1)
    torch.testing.assert_close(training.server["output.weight"], want.float())


def test_scaffold_begins_as_an_average_of_clients_all_alike_and_then_corrects_them(tmp_path):
    training, name = begun(tmp_path, "scaffold"), "output.weight"
    for first in (1, 3):
        start = {entry: value.clone() for entry, value in training.server.items()}
        control, own = dict(training.memory.get("control", {})), [dict(one) for one in training.remembered]

        def push(k, entry, control=control, own=own):
            return control[entry].float() - own[k][entry] if control else 0.0

        rate = training.rate()
        training._train_step()
        torch.testing.assert_close(training.server[name], descended(training, start, first, rate, push=push).mean(0))
    mean = sum(one[name] for one in training.remembered) / 3
    torch.testing.assert_close(training.memory["control"][name].float(), mean)
