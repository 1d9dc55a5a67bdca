"""Networks that benchmarks train side by side are each what they would be alone; orders and signs are judged right."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import normkit as nk
from normkit.lab.plan.models import same_start


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import leaderboard
    import side_by_side
    import signs

    return side_by_side, leaderboard, signs


def alone(lab, arm, lr, decay, seed):
    """One network in an ordinary loop, with Muon on its hidden matrices and AdamW on the rest."""
    model, known = same_start(lab.network(arm), seed), lab.data(arm.bed, arm.law)
    groups = nk.param_groups(model, "muon", blocks=False)
    hidden = [p for group in groups if group["use_muon"] for p in group["params"]]
    rest = [p for group in groups if not group["use_muon"] for p in group["params"]]
    optimizers = [
        nk.Muon(hidden, lr=lr, weight_decay=decay, ns_dtype=None),
        torch.optim.AdamW(rest, lab.REST, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for step, (rows,) in enumerate(lab.batches(arm, [seed], len(known.x))):
        for optimizer, peak in zip(optimizers, (lr, lab.REST), strict=True):
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = peak * lab.pace(step, arm.steps, arm.warmup)
        out = model(known.x[rows])
        F.cross_entropy(out.flatten(0, -2), known.y[rows].flatten()).backward()
        for optimizer in optimizers:
            optimizer.step()
    with torch.no_grad():
        return F.cross_entropy(model(known.held_x).flatten(0, -2), known.held_y.flatten()).item()


@pytest.mark.parametrize("bed", ["text", "images"])
def test_a_network_among_others_is_what_it_would_be_alone(bed, bench):
    lab = bench[0]
    arm, trials = lab.Arm(bed, "muon", steps=4, hidden=True), [(0.02, 0.0), (0.1, 1.0)]
    together = lab.train(arm, trials, (3, 5))
    expected = [[alone(lab, arm, lr, decay, seed) for seed in (3, 5)] for lr, decay in trials]
    torch.testing.assert_close(together, torch.tensor(expected, dtype=torch.float64), rtol=2e-4, atol=0)


def test_an_order_that_is_theirs_has_a_tau_near_one_and_a_shuffled_one_near_none(bench):
    board = bench[1]
    theirs = [steps for steps, _ in board.THEIRS.values()]
    noise = np.random.default_rng(0).normal(size=(len(theirs), 6))
    right = board.agreement(np.array(theirs)[:, None] + noise, theirs)
    assert right.tau > 0.9
    assert right.p < 0.01
    assert right.far == (17, 17)
    wrong = board.agreement(noise, theirs)
    assert abs(wrong.tau) < 0.5
    assert wrong.p > 0.05
    assert wrong.low < 0 < wrong.high


def test_signs_name_runs_once_and_controls_end_on_their_side(bench):
    signs = bench[2]
    assert len(signs.FINDINGS) >= 12
    assert all(sum(sign for sign, _ in one.terms) == 0 for one in signs.FINDINGS)
    assert len({one.name for one in signs.FINDINGS}) == len(signs.FINDINGS)


def test_a_finding_is_judged_by_the_seeds_that_its_runs_share(bench):
    lab, _, signs = bench
    worse, better = lab.Arm("text"), lab.Arm("images")
    known = {
        str(worse): lab.Kept([1.0, 1.1, 1.2, 9.0], (1.0, 0.0), []),
        str(better): lab.Kept([0.5, 0.6, 0.71], (1.0, 0.0), []),
    }
    seen = signs.judged(signs.Finding("planted", "one is worse", "0", signs.less(worse, better)), known)
    assert (seen.word, seen.seeds) == (signs.REPRODUCED, 3)
    assert seen.mean == pytest.approx(0.4966667)
