"""A case of the contract over many values: each that fails is named, and each that a card exempts must fail."""

from types import SimpleNamespace

import pytest
import torch

from normkit.contract import values
from normkit.contract.values import over

ALL = [(kind, dtype) for kind in ("zeros", "offset") for dtype in (torch.float32, torch.float16)]
EXEMPT = ("zeros", torch.float16)  # of mix-ln, whose card says why


def ends(fails, line="extremes", skips=()):
    """How a case of mix-ln ends whose test fails and skips at some values."""

    @over(kind=["zeros", "offset"], dtype=[torch.float32, torch.float16])
    def case(name, kind, dtype):
        assert name == "mix-ln"
        if (kind, dtype) in skips:
            pytest.skip("not of this one")
        assert (kind, dtype) not in fails, "wrong numbers"

    mark = pytest.mark.line(line).mark
    params = {"name": "mix-ln"}
    node = SimpleNamespace(get_closest_marker={"line": mark}.get, callspec=SimpleNamespace(params=params), obj=case)
    assert values.cases(node)[0] == (line, "mix-ln", ["zeros", "float32"])
    try:
        case(request=SimpleNamespace(node=node), **params)
    except (AssertionError, pytest.skip.Exception, pytest.xfail.Exception) as error:
        return error


def test_a_case_passes_where_all_values_pass_but_the_exempt_one():
    assert ends([EXEMPT]) is None


def test_each_value_that_fails_is_named_with_what_it_failed_with():
    error = ends([EXEMPT, ("offset", torch.float16), ("zeros", torch.float32)])
    first, *others = str(error).splitlines()
    assert first == "2 of 4 values: zeros float32, offset float16"
    assert [line for line in others if line.startswith("  ") and "Error" in line] == [
        "  zeros float32: AssertionError: wrong numbers",
        "  offset float16: AssertionError: wrong numbers",
    ]
    assert str(error.__cause__).startswith("wrong numbers")


def test_an_exempt_value_that_passes_is_an_error_but_where_rounding_differs_between_processors():
    assert "1 of 4 values: zeros float16\n  zeros float16: AssertionError: it is kept, and exempt: " in str(ends([]))
    assert "1 of 4 values: offset float32" in str(ends([("offset", torch.float32)], line="offsets"))


def test_values_that_skip_are_passed_over_and_a_case_skips_where_all_do():
    assert ends([EXEMPT], skips=ALL[2:]) is None
    assert "1 of 4 values: zeros float32" in str(ends([EXEMPT, ALL[0]], skips=ALL[2:]))
    assert isinstance(ends([], skips=ALL), pytest.skip.Exception)


def test_a_case_all_of_whose_values_are_exempt_is_expected_to_fail(monkeypatch):
    monkeypatch.setattr(values, "exemption", lambda *_: "has no such numbers")
    assert str(ends(ALL)) == "has no such numbers"


def test_values_of_one_word_are_each_held_to_the_case():
    @over(value=[8, "8"])
    def case(value):
        assert value == "8"

    node = SimpleNamespace(get_closest_marker={}.get)
    with pytest.raises(AssertionError, match="1 of 2 values: 8\n"):
        case(request=SimpleNamespace(node=node))
