"""Every method gives the numbers of its authors' code."""

import pytest

import normkit as nk
import replay

WRONG: dict[str, str] = {}  # case -> why the recording, worked out in float64 from the equations, is wrong


@pytest.mark.parametrize("case", replay.CASES)
def test_agrees_with_its_golden(case, request):
    if case in WRONG:
        request.applymarker(pytest.mark.xfail(reason=WRONG[case], strict=True))
    replay.replay(case)


def test_every_golden_belongs_to_a_method_or_a_function():
    known = {*nk.methods(), *replay._functions.FUNCTIONS}
    assert {case.split("/")[0] for case in replay.CASES} <= known
