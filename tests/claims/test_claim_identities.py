"""Every exact claim is measured again: the verdict is the stored one, and the control fails."""

import pytest

from normkit.claims import engine, shelf
from normkit.claims.engine import FAILS, HOLDS

IDENTITIES = shelf.every("identity")
FALSE = {  # what the papers or their readers claim, and what is not so
    ("fade", "parameters"),
    ("gyrobn-grassmann", "centred-as-published"),
    ("riemannian-batchnorm", "barycentre"),
}


@pytest.mark.parametrize("entry", IDENTITIES, ids=lambda entry: f"{entry.method}-{entry.name}")
def test_the_verdict_is_the_stored_one_and_the_control_fails(entry):
    result = engine.measured(entry.claim)
    verdict = engine.verdict(entry, result)
    assert verdict.word == (FAILS if entry[:3:2] in FALSE else HOLDS), verdict
    assert not any(map(entry.claim.wanted.met, result.control))
    kept = shelf.stored(entry)
    assert engine.verdict(entry, kept).word == verdict.word
    assert result.control[0] == pytest.approx(kept.control[0], rel=1e-3, abs=1e-9, nan_ok=True), "another control"


def test_all_fifty_rows_of_the_table_have_a_method_here():
    assert len({entry.method for entry in IDENTITIES}) >= 49
