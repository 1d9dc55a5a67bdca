"""Contract of methods of text: the same answer again and elsewhere, other types refused, any text taken."""

import copy
import inspect
import os
import pickle
import subprocess
import sys
import unicodedata

import pytest

import normkit as nk
from normkit.contract.subject import methods
from normkit.kinds import TEXT

METHODS = methods(lambda kind: kind is TEXT)
CALLS = [(name, call) for name in METHODS for call in nk.card(name).entry.calls]
STATED = [name for name in METHODS if nk.card(name).entry.form is not None]
ONE_BY_ONE = [("texts", "Sequence[str]"), ("mentions", "Sequence[str]")]
STRANGE = ["", " ", "...", "\U0001f1f1\U0001f1f9", "שלום עולם", "\ud800", "e\u0301", "\x00", "x" * 300]
ANSWERS = """
import pickle, sys
import normkit as nk
asked = pickle.load(sys.stdin.buffer)
told = [getattr(nk.card(name).small(), call)(*nk.card(name).entry.calls[call]) for name, call in asked]
sys.stdout.buffer.write(repr(told).encode("utf-8", "surrogatepass"))
"""


def asked(made, call):
    return getattr(made, call)(*type(made).calls[call])


def changed(value, to):
    """A value with every string in it replaced by ``to`` of it."""
    if isinstance(value, str):
        return to(value)
    if isinstance(value, dict):
        return {changed(key, to): changed(item, to) for key, item in value.items()}
    return type(value)(changed(item, to) for item in value) if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def elsewhere():
    """What a process with other hashes says to all calls."""
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS], input=pickle.dumps(CALLS), capture_output=True, env=env, check=True
    )
    return done.stdout.decode("utf-8", "surrogatepass")


@pytest.mark.line("again")
@pytest.mark.parametrize("name", METHODS)
def test_asked_again_it_says_the_same(name):
    made = nk.card(name).small()
    for call in type(made).calls:
        want = asked(made, call)
        for same in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert asked(same, call) == want


def test_a_process_with_other_hashes_says_the_same(elsewhere):
    assert repr([asked(nk.card(name).small(), call) for name, call in CALLS]) == elsewhere


@pytest.mark.line("untouched")
@pytest.mark.parametrize("name", METHODS)
def test_what_it_is_given_stays_as_it_was(name):
    made = nk.card(name).small()
    for call, given in type(made).calls.items():
        before = copy.deepcopy(given)
        answer = asked(made, call)
        assert given == before
        kept = copy.deepcopy(answer)
        asked(made, call)
        assert answer == kept


def each(name, call):
    """Where the argument stands whose texts are answered one by one, or None."""
    takes = list(inspect.signature(getattr(nk.card(name).entry, call)).parameters.values())[1:]
    places = [at for at, one in enumerate(takes) if (one.name, one.annotation) in ONE_BY_ONE]
    return places[0] if places else None


@pytest.mark.line("alone")
@pytest.mark.parametrize("name, call", [pair for pair in CALLS if each(*pair) is not None])
def test_each_text_is_answered_alone_as_in_company(name, call):
    made, at = nk.card(name).small(), each(name, call)
    given = type(made).calls[call]
    together = asked(made, call)
    alone = [getattr(made, call)(*given[:at], [text], *given[at + 1 :]) for text in given[at]]
    assert [[answer] for answer in together] == alone


@pytest.mark.line("types")
@pytest.mark.parametrize("name", METHODS)
def test_other_types_are_refused_by_name(name):
    made = nk.card(name).small()
    for call, given in type(made).calls.items():
        takes = list(inspect.signature(getattr(made, call)).parameters)
        for place, key in enumerate(takes[: len(given)]):
            for wrong in (b"bytes", object(), float("nan")):
                with pytest.raises((TypeError, ValueError), match=rf"\b{key}\b"):
                    getattr(made, call)(*given[:place], wrong, *given[place + 1 :])
    with pytest.raises(TypeError, match="epz"):
        nk.create(name, epz=1)


@pytest.mark.line("any-text")
@pytest.mark.parametrize("name", METHODS)
def test_any_text_gives_a_result_or_a_named_error(name):
    made = nk.card(name).small()
    for call, given in type(made).calls.items():
        for text in STRANGE:
            message = named_error(getattr(made, call), changed(given, lambda was, text=text: text))
            assert message.startswith(f"{type(made).__name__}: " if message else "")


def named_error(call, given):
    try:
        call(*given)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.line("unicode")
@pytest.mark.parametrize("name", STATED)
def test_composed_and_decomposed_text_give_the_same(name):
    made = nk.card(name).small()
    for call, given in type(made).calls.items():
        forms = (changed(given, lambda was, form=form: unicodedata.normalize(form, was)) for form in ("NFC", "NFD"))
        composed, decomposed = (getattr(made, call)(*args) for args in forms)
        assert changed(composed, to_form) == changed(decomposed, to_form)


def to_form(text):
    return unicodedata.normalize("NFC", text)
