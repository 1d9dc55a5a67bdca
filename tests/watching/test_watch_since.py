"""Since when something is wrong: as counted at every step, however few steps are looked at and however many were."""

import contextlib
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import mlp, points

import normkit as nk
from normkit.watching import load
from normkit.watching.store import MEAN, Sign, Store
from normkit.watching.watching import is_due

STEPS = 240
AT = {17: 120, 133: STEPS}  # when something goes wrong, and the steps of that training


def outputs_of(model):
    """Return what each child of a model gives in its next call."""
    kept = {}
    for name, child in model.named_children():
        child.register_forward_hook(lambda _, x, y, name=name: kept.update({name: (x[0].detach(), y.detach())}))
    return kept


def dead(model, kept, moved):
    return (kept["3"][1].amax(0) == 0).float().mean() > 0.3


def flat(model, kept, moved):
    return (torch.tanh(kept["3"][0]).abs() > 0.99).float().mean() > 0.5


def faint(model, kept, moved):
    return (1e-5 / (kept["1"][0].var(1, correction=0) + 1e-5)).mean() > 0.5


def still(model, kept, moved):
    return moved < 1e-7


def unbounded(model, kept, moved):
    return not kept["2"][1].isfinite().all()


def shifted(model, x, step, at):
    if step == at:
        model[2].bias.data -= 9


def sinking(model, x, step, at):
    model[2].bias.data -= 8 / at


def growing(model, x, step, at):
    model[2].weight.data *= 1 + 2 / at


def fading(model, x, step, at):
    if step >= at:
        model[0].weight.data *= 1e-4 / model[0].weight.abs().max()
        model[0].bias.data.zero_()


def stopping(model, optimizer, step, at):
    optimizer.param_groups[0]["lr"] = 1e-3 if step < at else 1e-12


def overflowing(model, x, step, at):
    if step == at:
        model[2].weight.data *= math.inf


ILL = {
    "dead at once": (mlp, shifted, dead, "dead-units", "3"),
    "dead slowly": (mlp, sinking, dead, "dead-units", "3"),
    "saturated": (lambda: mlp(function=nn.Tanh), growing, flat, "saturated-function", "3"),
    "faint": (lambda: mlp(norm="layernorm", function=nn.Identity), fading, faint, "eps-dominates", "1"),
    "stalled": (mlp, stopping, still, "stalled-weights", "0.weight"),
    "infinite": (mlp, overflowing, unbounded, "not-a-number", None),
}


def run(make, plant, ill, at, gaps=(1,), steps=STEPS, **options):
    """Train, and return the watches and the first step from which on it was ill, counted at every one."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kept, first = outputs_of(model), None
    watches = [nk.watch(model, optimizer, every=gap, **options) for gap in gaps]
    with contextlib.ExitStack() as stack:
        for watch in watches:
            stack.enter_context(watch)
        for step in range(1, steps + 1):
            x, y = points(step)
            plant(model, optimizer, step, at)
            F.cross_entropy(model(x), y).backward()
            before = model[0].weight.detach().clone()
            optimizer.step()
            optimizer.zero_grad()
            moved = (model[0].weight - before).norm() / before.norm()
            first = (first or step) if ill(model, kept, moved) else None
    return watches, first


@pytest.mark.parametrize("name, at", [(name, at) for name in ILL for at in AT])
def test_since_is_right_within_a_tenth_or_five_steps(name, at):
    make, plant, ill, rule, where = ILL[name]
    watches, truth = run(make, plant, ill, at, (1, 5, 20, 100), AT[at], keep=64)
    for watch in watches:
        [finding] = watch.diagnosis().of(rule)
        assert where in (None, *finding.where), watch.every
        assert abs(finding.since - truth) <= max(5, 0.1 * truth), watch.every


def test_a_file_that_was_thinned_knows_it_as_well(tmp_path):
    [seen], truth = run(*ILL["dead slowly"][:3], 63, keep=16, to=tmp_path)
    [told], [read] = (one.diagnosis().of("dead-units") for one in (seen, load(tmp_path / "watch.jsonl")))
    assert len(load(tmp_path / "watch.jsonl").steps) < 40
    assert told.since == truth
    assert abs(read.since - truth) <= max(5, 0.1 * truth)


def test_a_checkpoint_knows_it_as_well():
    [seen], truth = run(*ILL["dead slowly"][:3], 63, keep=16)
    other = nk.watch(seen.model, seen.optimizers, keep=16)
    other.load_state_dict(seen.state_dict())
    assert str(other.diagnosis()) == str(seen.diagnosis())
    assert other.diagnosis().of("dead-units")[0].since == truth


@pytest.mark.parametrize("last", [200, 3000, 100_000])
def test_samples_are_spread_over_the_whole_run(last):
    store = Store(keep=64)
    for step in range(1, last + 1, last // 200):
        store.add(step, [("a", "rms")], [MEAN], torch.tensor([1.0]))
    assert len(store.steps) == 64
    parts = [sum(low <= step / last < low + 0.25 for step in store.steps) for low in (0.0, 0.25, 0.5, 0.75)]
    assert min(parts) >= 6
    assert max(late - early for early, late in itertools.pairwise(store.steps)) <= 0.06 * last


def test_a_beginning_is_reported_more_finely_than_the_rest():
    store = Store(keep=64)
    for step in range(1, 20_001):
        store.add(step, [("a", "rms")], [MEAN], torch.tensor([1.0]))
    assert sum(step <= 1000 for step in store.steps) >= 12
    gaps = [(late - early) / early for early, late in itertools.pairwise(store.steps) if early > 100]
    assert max(gaps) < 0.35


def test_the_sample_in_which_a_sign_was_first_seen_stays_as_it_was():
    sign = Sign("dead", 0.3)
    store = Store(keep=16, signs=[sign])
    for step in range(1, 2001):
        store.add(step, [("a", "dead")], [MEAN], torch.tensor([0.5 if step == 333 else 0.0]))
    assert store.table()[store.steps.index(333), 0] == 0.5
    assert store.since("a", sign) is None, "it has gone again"


@pytest.mark.parametrize("every", [1, 5, 20, 100, 1000])
def test_at_the_beginning_steps_lie_a_tenth_apart_until_every_is_reached(every):
    due = [step for step in range(1, 5001) if is_due(step, every)]
    assert due[0] == 1
    assert set(range(every, 5001, every)) <= set(due)
    for early, late in itertools.pairwise(due):
        assert late - early <= max(min(5, every), min(every, 0.1 * late))
