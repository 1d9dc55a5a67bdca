"""Every property has a stored verdict whose control fails; the quick ones are measured again."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from normkit.claims import engine, noise, shelf
from normkit.claims.activation import rmsnorm
from normkit.claims.density import _wells
from normkit.claims.engine import FAILS, HOLDS, UNDECIDED
from normkit.claims.residual import widenet

PROPERTIES = [entry for entry in shelf.every("property") if entry.claim is not None]
QUICK = [entry for entry in PROPERTIES if shelf.stored(entry).seconds < 0.5]
NEVER_ALIKE = {  # times, bfloat16, which each processor adds up in its own order, and roundings times a thousand
    ("flow-attention", "linear"),
    ("galerkin", "linear"),
    ("gdwct", "cost"),
    ("gdwct", "cost-of-all"),
    ("normuon", "even-rows"),
    ("rmsnorm", "time-kernels"),
    ("tangent-normalization", "logarithm"),
}
FALSE = {
    ("alds-decompose", "splits"),
    ("alignment-uniformity", "opposite-sum"),
    ("attention-separation", "distance"),
    ("attention-separation", "temperature"),
    ("bnpo", "least-variance"),
    ("candidate-ensemble", "recall"),
    ("ccnorm", "gate-learns"),
    ("crmsnorm", "time"),
    ("deepnorm", "update-of-all"),
    ("dual-dynamic-inverted-softmax", "small-bank"),
    ("dual-inverted-softmax", "hubness"),
    ("dual-inverted-softmax", "recall"),
    ("dynamic-inverted-softmax", "foreign-bank"),
    ("eln", "row"),
    ("fixup-block", "first-step-scalars"),
    ("flow-attention", "sharper"),
    ("gated-linear", "leaves-saturation"),
    ("gbw-batchnorm", "gradient"),
    ("group-orthogonality", "time"),
    ("hubness", "dimension"),
    ("inverted-softmax", "hubness"),
    ("inverted-softmax", "recall"),
    ("lightning", "constant-time"),
    ("lightning", "constant-time-long"),
    ("lineas", "end-to-end"),
    ("lp-dictionary", "faster"),
    ("normalized-logistic-gd", "margin"),
    ("post-norm", "early-gradients"),
    ("post-norm", "early-gradients-attention"),
    ("regularized-relevance-reward", "padding"),
    ("relevance-decay", "bias"),
    ("shiftquant", "near-channels"),
    ("shiftquant", "near-channels-enough-groups"),
    ("softmax-free", "nears"),
    ("tangent-normalization", "kernel"),
    ("transnormer", "bounded"),
    ("unifiednorm", "outlier"),
    ("unifiednorm", "outlier-filtered"),
    ("unselectable-keys", "few"),
}
OPEN = {("rmsnorm", "time-kernels")}


def named(entry):
    return f"{entry.method}-{entry.name}"


@pytest.mark.parametrize("entry", PROPERTIES, ids=named)
def test_the_stored_verdict_is_the_one_that_is_known_and_its_control_fails(entry):
    kept = shelf.stored(entry)
    verdict, name = engine.verdict(entry, kept), (entry.method, entry.name)
    assert verdict.word == (UNDECIDED if name in OPEN else FAILS if name in FALSE else HOLDS), verdict
    assert engine.verdict(entry, kept._replace(numbers=kept.control)).word != HOLDS
    assert len(kept.numbers) == len(kept.control) == entry.claim.draws


@pytest.mark.parametrize("entry", QUICK, ids=named)
def test_measured_again_the_verdict_is_the_same(entry):
    assert engine.verdict(entry, engine.measured(entry.claim)).word == engine.verdict(entry, shelf.stored(entry)).word


def is_short(entry):
    """Whether a draw takes little, and gives the same number each time."""
    return shelf.stored(entry).seconds / entry.claim.draws < 0.7 and entry[:3:2] not in NEVER_ALIKE


@pytest.mark.parametrize("entry", list(filter(is_short, PROPERTIES)), ids=named)
def test_the_first_draw_of_an_experiment_gives_the_stored_numbers(entry):
    """So the verdict is that of this code: another size, chance or control gives other numbers."""
    first, kept = (
        SimpleNamespace(measure=entry.claim.measure, control=entry.claim.control, draws=1, rule="every"),
        shelf.stored(entry),
    )
    numbers, control, _ = engine.measured(first)
    assert (*numbers, *control) == pytest.approx((kept.numbers[0], kept.control[0]), rel=1e-3, abs=1e-9, nan_ok=True)


def test_the_formulas_that_are_timed_are_those_of_torch():
    x = 3 * torch.randn(4, 1024, generator=torch.Generator().manual_seed(0)) + 1
    torch.testing.assert_close(rmsnorm.rms(x), F.rms_norm(x, (1024,), rmsnorm.GAIN, eps=1e-6))
    torch.testing.assert_close(
        rmsnorm.layer(x), F.layer_norm(x, (1024,), rmsnorm.GAIN, rmsnorm.SHIFT, eps=1e-6), rtol=1e-4, atol=1e-5
    )


def test_the_gains_of_passes_that_share_their_layers_part():
    torch.manual_seed(0)
    assert widenet.variation(0) > 0.05


def test_the_correlation_time_counts_small_correlations_too(monkeypatch):
    """Sides that change with a chance of 1/4 agree by 1/2, 1/4, .. after 1, 2, .. steps: 3 in all."""
    torch.manual_seed(0)
    monkeypatch.setattr(_wells, "CHAINS", 4000)
    flip = lambda x: torch.where(torch.rand(len(x), 1) < 0.25, -x, x)  # noqa: E731
    assert _wells.correlation_time(flip) == pytest.approx(3, abs=0.15)


def test_a_bed_that_is_to_see_noise_has_learned_its_digits():
    assert noise.right(0, 0.0, 0.0).double().mean() > 0.8
