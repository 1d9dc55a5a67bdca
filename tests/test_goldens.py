"""Every method gives the numbers of its authors' code."""

import pytest

import normkit as nk
from normkit.contract.goldens.places import OURS
from normkit.contract.goldens.replay import functions, replay

CASES = {f"{p.parent.name}/{p.stem}": p for p in sorted(OURS.glob("*/*")) if p.suffix in (".npz", ".json")}
WRONG: dict[str, str] = {}  # case -> why the recording, worked out in float64 from the equations, is wrong


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_its_golden(case, request):
    if case in WRONG:
        request.applymarker(pytest.mark.xfail(reason=WRONG[case], strict=True))
    replay(CASES[case])


def test_every_golden_belongs_to_a_method_or_a_function():
    known = {*nk.methods(), *functions(OURS)}
    assert {case.split("/")[0] for case in CASES} <= known
