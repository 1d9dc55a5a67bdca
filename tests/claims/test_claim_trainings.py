"""Claims of training: stored verdicts whose control fails, on beds that saw what is known; the quick ones again."""

import math

import pytest
import torch

from normkit.claims import beds, engine, shelf
from normkit.claims.beds import BATCHNORM, PAIRS, Run

TRAININGS = [entry for entry in shelf.every("training") if entry.claim is not None]
KNOWN = shelf.beds()
QUICK = [entry for entry in (*TRAININGS, *KNOWN) if getattr(shelf.stored(entry), "seconds", 9) < 1]


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
    assert len(kept.numbers) == len(kept.control) == entry.claim.draws
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


@pytest.mark.parametrize("peak, rate", [(0.01, 0.01), (0.27, 0.27), (1e-9, math.nan), (99.0, math.nan)])
def test_the_search_of_a_rate_goes_on_at_either_end_and_an_end_without_a_best_is_none(monkeypatch, peak, rate):
    monkeypatch.setattr(beds, "searched", lambda run, lr: -abs(math.log(lr / peak)))
    assert beds.rate.__wrapped__(BATCHNORM) == pytest.approx(rate, nan_ok=True)


def test_a_twin_has_the_same_law_and_other_numbers_and_keeps_the_rate(monkeypatch):
    asked = []
    monkeypatch.setattr(beds, "rate", lambda run: asked.append(run) or 0.01)
    monkeypatch.setattr(beds, "accuracy", lambda run, seed, lr: 90.0 + run.permute - run.share)
    twin = BATCHNORM._replace(permute=True)
    assert beds.gain(0, twin, BATCHNORM._replace(share=0.5)) == 0.5
    assert asked == [BATCHNORM] * 2
