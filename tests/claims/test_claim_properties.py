"""Every property has a stored verdict whose control fails; the quick ones are measured again."""

import pytest

from normkit.claims import engine, shelf
from normkit.claims.engine import FAILS, HOLDS

PROPERTIES = [entry for entry in shelf.every("property") if entry.claim is not None]
QUICK = [entry for entry in PROPERTIES if shelf.stored(entry).seconds < 0.5]
FALSE = {
    ("alds-decompose", "splits"),
    ("candidate-ensemble", "recall"),
    ("eln", "row"),
    ("fixup-block", "first-step-scalars"),
    ("flow-attention", "sharper"),
    ("gbw-batchnorm", "gradient"),
    ("group-orthogonality", "time"),
    ("hubness", "dimension"),
    ("shiftquant", "near-channels"),
    ("shiftquant", "near-channels-enough-groups"),
    ("tangent-normalization", "kernel"),
    ("unifiednorm", "outlier"),
    ("unifiednorm", "outlier-filtered"),
}


def named(entry):
    return f"{entry.method}-{entry.name}"


@pytest.mark.parametrize("entry", PROPERTIES, ids=named)
def test_the_stored_verdict_is_the_one_that_is_known_and_its_control_fails(entry):
    kept = shelf.stored(entry)
    verdict = engine.verdict(entry, kept)
    assert verdict.word == (FAILS if (entry.method, entry.name) in FALSE else HOLDS), verdict
    assert engine.verdict(entry, kept._replace(numbers=kept.control)).word != HOLDS
    assert len(kept.numbers) == len(kept.control) == entry.claim.draws


@pytest.mark.parametrize("entry", QUICK, ids=named)
def test_measured_again_the_verdict_is_the_same(entry):
    assert engine.verdict(entry, engine.measured(entry.claim)).word == engine.verdict(entry, shelf.stored(entry)).word
