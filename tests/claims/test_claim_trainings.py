"""Claims of training: stored verdicts whose control fails, on beds that saw what is known; the quick ones again."""

import math

import pytest
import torch

from normkit.claims import beds, clients, engine, images, shelf, training
from normkit.claims.beds import BATCHNORM, PAIRS, Run
from normkit.claims.clients import SHARED
from normkit.claims.training import SEARCH, Contest, together
from normkit.lab.plan.models import same_start

TRAININGS = [entry for entry in shelf.every("training") if entry.claim is not None]
KNOWN = shelf.beds()
QUICK_BEDS = ("gaussians",)
BATCH = images.Run()
QUICK = [entry for entry in (*TRAININGS, *KNOWN) if entry.method in QUICK_BEDS or entry.claim.bed in QUICK_BEDS]


def named(entry):
    return f"{entry.method}-{entry.name}"


@pytest.mark.parametrize("entry", KNOWN, ids=named)
def test_a_bed_saw_what_is_known_and_nothing_between_twins(entry):
    kept = shelf.stored(entry)
    assert engine.verdict(entry, kept).word == engine.HOLDS
    assert engine.verdict(entry, kept._replace(numbers=kept.control)).word != engine.HOLDS


@pytest.mark.parametrize("entry", TRAININGS, ids=named)
def test_a_claim_has_every_seed_stored_and_its_control_does_not_hold(entry):
    kept = shelf.stored(entry)
    verdict = engine.verdict(entry, kept)
    assert verdict.bed in {bed.name for bed in beds.BEDS}
    assert engine.verdict(entry, kept._replace(numbers=kept.control)).word != engine.HOLDS
    assert len(kept.numbers) == len(kept.control)
    assert len(kept.numbers) in (entry.claim.draws, entry.claim.further)
    assert not verdict.why.startswith("the measure is blind")


@pytest.mark.parametrize("entry", QUICK, ids=named)
def test_measured_again_the_verdict_is_the_same(entry):
    assert engine.verdict(entry, engine.measured(entry.claim)).word == engine.verdict(entry, shelf.stored(entry)).word


def test_two_runs_of_a_seed_have_the_same_batches_and_seeds_have_others():
    one, held = beds.batches(BATCHNORM, 0)
    other, _ = beds.batches(Run("groupnorm"), 0)
    assert all(map(torch.equal, one, other))
    assert not torch.equal(one[0], beds.batches(BATCHNORM, 1)[0][0])
    assert not set(torch.cat(one).tolist()) & set(held.tolist())
    small, _ = beds.batches(BATCHNORM._replace(batch=2), 0)
    assert torch.equal(torch.cat(small), torch.cat(one))  # the same samples in the same order
    pairs, _ = beds.batches(PAIRS, 0)
    labels = beds.digits()[1]
    assert all(len(labels[rows].unique()) <= 2 for rows in pairs)
    assert len(pairs) == len(one)


def peaked(peak):
    """A contest whose scores are best at a rate; what is searched is kept."""

    def scores(run, seeds, rates):
        asked.extend(zip(seeds, rates, strict=True))
        return [90 - abs(math.log(rate / peak)) + run.permute - run.share for rate in rates]

    asked = []
    return Contest(scores, (3e-3, 1e-2, 3e-2)), asked


@pytest.mark.parametrize("peak, rate", [(0.01, 0.01), (0.27, 0.27), (1e-9, math.nan), (99.0, math.nan)])
def test_the_search_of_a_rate_goes_on_at_either_end_and_an_end_without_a_best_is_none(peak, rate):
    contest, asked = peaked(peak)
    assert contest.rate(BATCHNORM) == pytest.approx(rate, nan_ok=True)
    assert {seed for seed, _ in asked} == set(SEARCH)
    assert math.isnan(contest.gain(0, BATCHNORM, BATCHNORM)) == math.isnan(rate)


def test_a_twin_has_the_same_law_and_other_numbers_and_keeps_the_rate():
    contest, asked = peaked(0.01)
    twin = BATCHNORM._replace(permute=True)
    assert contest.gain(0, twin, BATCHNORM._replace(share=0.5)) == 0.5
    assert {rate for seed, rate in asked if seed not in SEARCH} == {0.01}
    relative = contest._replace(relative=True)
    assert relative.gain(3, twin, BATCHNORM) == pytest.approx(100 / 89)


def test_what_is_known_is_a_gain_whose_interval_lies_above_none():
    known = peaked(0.01)[0].known("planted", "It is so.", BATCHNORM, PAIRS, by=0.5)
    assert engine._judge(known, [0.7, 0.9] * 4)[0] == engine.HOLDS
    assert engine._judge(known, [-0.7, 2.1] * 4)[0] == engine.UNDECIDED


def nets(count):
    return [same_start(images.Net(images.Run(norm="groupnorm")), seed).double() for seed in range(count)]


def test_networks_that_are_trained_side_by_side_are_those_of_adam_alone(monkeypatch):
    monkeypatch.setattr(training, "EPS", 1e-30)  # which torch adds elsewhere
    x, labels = images.digits()[0][:64].double(), images.digits()[1][:64]
    rates, rows = [0.01, 0.003], torch.randperm(64, generator=torch.Generator().manual_seed(0)).view(4, 16)

    def batch(step):
        return x[rows[step]].expand(2, -1, -1, -1, -1), labels[rows[step]].expand(2, -1)

    weights, _ = together(nets(2), images.loss, batch, 4, rates, warmup=1)
    for at, (model, rate) in enumerate(zip(nets(2), rates, strict=True)):
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, eps=1e-30)
        for step in range(4):
            optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 2) * (1 - step / 4)
            optimizer.zero_grad()
            images.loss(model, x[rows[step]], labels[rows[step]]).backward()
            optimizer.step()
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weights[name][at], weight.detach(), rtol=1e-5, atol=1e-7)


def test_running_moments_of_networks_side_by_side_are_their_own():
    made = [same_start(images.Net(BATCH), seed) for seed in (0, 1)]
    x, labels = (part[:16] for part in images.digits())
    both = x.expand(2, -1, -1, -1, -1), labels.expand(2, -1)
    _, buffers = together(made, images.loss, lambda step: both, 1, [0.0, 0.0])
    model = same_start(images.Net(BATCH), 1)
    model(x)
    torch.testing.assert_close(buffers["layers.1.running_mean"][1], model.layers[1].running_mean)


def test_clients_have_few_classes_or_shifts_of_their_own_and_all_variants_the_same_digits():
    for count in (1, 2):
        own = clients.data(clients.Run(classes=count), 0)[1]
        assert all(len(labels.unique()) <= count for labels in own)
        assert len(own.unique()) == 10
    one, other = (clients.data(clients.Run(shifted=True, local=local), 3) for local in (False, True))
    assert all(map(torch.equal, one, other))
    assert not torch.equal(one[2][0], one[2][1])
    plain = clients.data(clients.Run(), 3)
    assert torch.equal(plain[2][0], plain[2][1])
    assert torch.equal(plain[1], one[1])


def test_batch_norms_stay_with_their_clients_where_they_are_local():
    state = {name: torch.randn(1, clients.CLIENTS, *value.shape) for name, value in clients.started(SHARED, 0).items()}
    shared, own = (clients.joined(run, state) for run in (SHARED, clients.OWN))
    for name, value in state.items():
        mean = value.mean(1, keepdim=True).expand_as(value)
        torch.testing.assert_close(shared[name], mean)
        torch.testing.assert_close(own[name], value if name in clients.NORM else mean)
