"""What each method answers, begins with, refuses and takes is what is written down: a slip in one number is seen."""

import json

import pytest

import answers
import normkit as nk

HOW = "look at what has changed; if it is meant, run `python tools/answers.py {}`"


def parts(name):
    assert answers.path(name).exists(), f"nothing is written down yet: run `python tools/answers.py {name}`"
    return answers.parts(name)


@pytest.mark.parametrize("name", answers.CALLED)
def test_a_method_answers_what_is_written_down(name):
    now, known = answers.answers(name), parts(name)["answers"]
    assert now.keys() == known.keys(), HOW.format(name)
    for case, values in known.items():
        for what, got, want in zip(("output", "gradient", "state"), now[case], values, strict=False):
            assert want is None or got == pytest.approx(want, rel=1e-4, abs=1e-4), f"{case}: {what}"


@pytest.mark.parametrize("name", answers.MODULES)
def test_a_module_begins_as_it_is_written_down(name):
    now, known = answers.beginnings(name), parts(name)["begins"]
    assert now.keys() == known.keys(), HOW.format(name)
    for key, (shape, values) in now.items():
        assert shape == known[key][0], key
        assert values == pytest.approx(known[key][1], rel=1e-3, abs=1e-4, nan_ok=True), key


@pytest.mark.parametrize("name", answers.REFUSING)
def test_a_method_refuses_what_is_written_down_and_no_more(name):
    assert answers.refusals(name) == parts(name)["refuses"], HOW.format(name)


@pytest.mark.parametrize("name", nk.methods())
def test_a_method_takes_what_is_written_down(name):
    assert answers.takes(name) == parts(name)["takes"], HOW.format(name)


def test_nothing_is_written_down_of_methods_that_are_not_there():
    assert not answers.leftovers()


@pytest.mark.parametrize("name", answers.commands())
def test_a_command_takes_what_is_written_down(name):
    known = json.loads(answers.command_path(name).read_text(encoding="utf-8"))
    assert answers.commands()[name] == known, HOW.format("--commands")


def test_nothing_is_written_down_of_commands_that_are_not_there():
    assert {*answers.COMMANDS.glob("*.json")} == set(map(answers.command_path, answers.commands()))


def test_one_file_is_written_of_a_new_method(tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "GOLDENS", tmp_path)
    answers.main(["srmsnorm"])
    [file] = tmp_path.rglob("*.*")
    assert file == tmp_path / "srmsnorm" / answers.FILE
    assert answers.parts("srmsnorm", tmp_path).keys() == {"answers", "begins", "refuses", "takes"}
    assert file.read_bytes() == (answers.TESTS / "goldens/srmsnorm" / answers.FILE).read_bytes()
