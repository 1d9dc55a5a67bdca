"""Contract, exemptions: each names cases that exist. That these do fail, a fixture in tests/conftest.py sees to."""

import pytest

import normkit as nk
from normkit import catalog, families
from normkit.contract import test_ranks
from normkit.contract.subject import METHODS, build, draw

BY_NAME = {"gradients", "moves"}  # whose cases are parameters and buffers, which the tests of these lines compare
OTHERS = {"goldens", *(f"{kind}-goldens" for kind in families.KINDS)}  # of other packages; ours are in tests/goldens


def test_every_exemption_names_a_case(cases, request):
    if request.config.option.keyword or request.config.getoption("changed", None):
        pytest.skip("only some of the cases run")
    tested = {(line, name): [] for line, name, _ in cases}
    for line, name, words in cases:
        tested[line, name].append(set(words))
    for name in METHODS:
        for key in nk.card(name).exempt:
            line, *words = key.split()
            known = tested.get((line, name))
            assert known is None or any(set(words) <= case for case in known), f"{name}: {key!r} names no case"


def test_every_line_that_can_be_exempt_is_tested(cases):
    lines = {line for line, _, _ in cases}
    if not {"extremes", "half", "pickle", "export", "processes", "onnx"} <= lines:
        pytest.skip("only some of the files run")
    known = {*catalog.CONTRACT, *(line for own in families.LINES.values() for line in own)}
    assert known - BY_NAME - OTHERS == lines


def test_an_exemption_covers_the_cases_that_have_all_its_words():
    card = nk.card("mix-ln")
    assert card.exemption("extremes", "zeros", "float16") == card.exempt["extremes zeros float16"]
    assert card.exemption("extremes", "zeros", "float32") is None
    assert card.exemption("half", "zeros", "float16") is None
    assert nk.card("gdwct").exemption("empty") == nk.card("gdwct").exempt["empty"]


def test_an_exemption_from_an_unknown_line_is_refused():
    with pytest.raises(ValueError, match="swiftness"):
        catalog.method("x", paper="", shape="C", over="", exempt={"swiftness float16": "slow"})


@pytest.mark.parametrize("name", ["conr", "density-normalized-edge-loss"])
def test_a_number_for_a_whole_batch_asks_for_an_exemption(name):
    inputs = draw(name, batch=sum(test_ranks.SHARES))
    with pytest.raises(AssertionError, match=r"of \(\) has no axis of samples; if it is .* exempt={\"processes"):
        test_ranks.joined_run(build(name), name, inputs, 0)
