"""Rules: in order, once each, with places in the original, and never for ever."""

import re
import time
import tracemalloc

import pytest

from normkit.text import Rules


def test_rules_are_applied_in_order_and_once():
    rules = Rules([("a", "aa"), (r"(aa)+b", lambda found: f"<{found[1]}>")])
    assert rules("ab cab") == "<aa> c<aa>"
    assert rules("") == ""


def test_they_are_those_of_the_standard_library():
    for pattern, to, text in [
        (r"\d+", r"[\g<0>]", "a1b22"),
        (r"x*", "-", "axb"),
        (r"(?i)STR\.", "street", "Main Str."),
    ]:
        assert Rules([(pattern, to)])(text) == re.sub(pattern, to, text)


def test_places_are_those_of_the_original():
    rules = Rules([(r"\s+", " "), (r"(\d) km", r"\1 kilometres"), ("kilo", ""), (r"metres", "m")])
    text = "it is   5  km\tfar"
    for change in rules.trace(text):
        assert change.pattern != r"\s+" or text[change.start : change.end] == change.before
    *_, second, third, fourth = rules.trace(text)
    assert [text[one.start : one.end] for one in (second, third, fourth)] == ["5  km"] * 3
    assert (second.before, second.after) == ("5 km", "5 kilometres")
    assert rules(text) == "it is 5 m far"


def test_letters_that_are_put_in_have_a_place():
    assert [(one.start, one.end) for one in Rules([(r"\b", "|")]).trace("ab c")] == [(0, 0), (2, 2), (3, 3), (4, 4)]


def test_an_explosion_is_stopped_and_named():
    rules = Rules([("b", "c"), (r"^(\w|\w\w|\w+)+$", "")], seconds=0.2)
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"rule 1, .*took more than 0.2 s on a text of 61 characters"):
        rules("a" * 60 + "!")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "rules, said",
    [
        (None, "rules must be"),
        ([("(", "")], "no regular expression"),
        ([("a",)], "rule 0 must be"),
        ([("a", 3)], "rule 0 must be"),
    ],
)
def test_what_is_no_rule_is_named(rules, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Rules(rules)


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError, match="text must be a string"):
        Rules([])(b"a")
    with pytest.raises(TypeError, match="rule 0 must return a string, not 3"):
        Rules([("a", lambda found: 3)])("a")
    with pytest.raises(ValueError, match=r"rule 0 has the template '.*9', which is wrong: no such group"):
        Rules([("a", r"\9")])("a")


def test_strange_texts_are_rewritten():
    assert Rules([(r"\p{Lu}", "x")])("\ud800É\U0001f600") == "\ud800x\U0001f600"


def test_a_long_text_is_rewritten_without_a_place_for_each_of_its_letters():
    rules, text = Rules([("b", "bb"), ("c$", "d")]), "a" * 200_000 + "bc"
    tracemalloc.start()
    try:
        assert rules(text) == text[:-2] + "bbd"
        assert tracemalloc.get_traced_memory()[1] < 10 * len(text)
    finally:
        tracemalloc.stop()
