"""``normkit claim`` as it is typed, ``nk.claim``, and the page of the site."""

import json
import pathlib
import sys

import pytest

import normkit as nk
from normkit import cli
from normkit.claims import commands, engine, pages, shelf

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "claims.md"


def told(capsys, *words):
    code = cli.main(["claim", *words])
    return code, capsys.readouterr().out


def test_a_method_is_described_with_number_bound_control_and_verdict(capsys):
    code, text = told(capsys, "rmsnorm")
    assert code == 1  # what is claimed of its time with kernels does not hold
    assert text.startswith("rmsnorm: Root Mean Square Layer Normalization")
    assert "scale: holds\n  A positive scale of a row does not matter.\n  error: " in text
    assert ", must be at most 1e-10; every one of 10 draws is at most 1e-10\n  control, rows shifted too: 0.5" in text
    assert "as-layernorm: holds at this scale\n" in text
    assert "smallest effect that would have been found four times in five: 0.929" in text


def test_what_does_not_hold_is_said_and_is_the_exit_status(capsys):
    code, text = told(capsys, "fade")
    assert code == 1
    assert "parameters: does not hold" in text
    assert "share of SPADE's parameters: 7.52, must be at most 0.999; not every one of 1 draws is" in text


def test_all_are_a_table_sorted_by_verdict(capsys):
    code, text = told(capsys, "--all", "--kind", "identity")
    lines = text.splitlines()
    assert code == 1
    assert lines[0].split() == ["method", "claim", "verdict", "number", "must", "be", "control"]
    words = ["does not hold" in line for line in lines[1:-1]]
    assert words == sorted(words, reverse=True)
    assert sum(words) == 3
    assert lines[-1] == f"{len(words) - 3} holds, 3 does not hold"


def test_json_and_python_give_the_same(capsys):
    _, text = told(capsys, "layernorm", "--json")
    assert json.loads(text) == [verdict.to_dict() for verdict in nk.claim("layernorm")]
    assert [verdict.word for verdict in nk.claim("layernorm", run=True)][:3] == ["holds"] * 3


def test_numbers_are_written_where_one_says(capsys, tmp_path):
    assert told(capsys, "srmsnorm", "--run", "-o", str(tmp_path))[0] == 0
    kept = json.loads((tmp_path / "activation.json").read_text())["claims"]["srmsnorm"]["is-rmsnorm"]
    assert (kept["wanted"], kept["numbers"]) == ("at most 1e-07", ["0"] * 10)


@pytest.mark.parametrize(
    "words", [[], ["rmsnorm", "--all"], ["rmsnorm", "-o", "x"], ["rmsnorm", "--page", "x"], ["--all", "--budget", "x"]]
)
def test_what_makes_no_sense_is_refused(capsys, words):
    assert told(capsys, *words)[0] == 2


def test_a_page_that_is_not_there_is_named(capsys):
    assert cli.main(["claim", "--all", "--page", "nowhere.md"]) == 2
    assert "--page: nowhere.md" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["file", "file/folder", *["/proc"] * (sys.platform == "linux")])
def test_what_stands_in_the_place_of_the_results_is_named_before_any_measuring(capsys, tmp_path, monkeypatch, name):
    monkeypatch.setattr(engine, "judged", lambda *args, **options: pytest.fail("measured"))
    (tmp_path / "file").touch()
    assert cli.main(["claim", "srmsnorm", "--run", "-o", str(tmp_path / name)]) == 2
    said = f"{tmp_path / name}/claims.json cannot be written: {tmp_path / name.partition('/folder')[0]}: No"
    assert said in capsys.readouterr().err


def test_a_budget_is_a_time():
    assert [commands.seconds(text) for text in ("90", "90s", "1.5m", "1h")] == [90, 90, 90, 3600]


def test_show_has_a_line_of_the_verdicts(capsys):
    cli.main(["show", "fade"])
    line = "Claims\n  holds: constant-class, parameters-narrow; does not hold: parameters ('normkit claim fade')"
    assert line in capsys.readouterr().out
    cli.main(["show", "srmsnorm", "--json"])
    assert json.loads(capsys.readouterr().out)["claims"].startswith("holds: is-rmsnorm")
    cli.main(["show", "lamb"])
    assert "Claims" not in capsys.readouterr().out


def test_the_page_has_what_is_stored(tmp_path):
    copy = tmp_path / "claims.md"
    copy.write_text(PAGE.read_text())
    pages.write(copy, engine.together(engine.verdicts(shelf.every())))
    assert copy.read_text() == PAGE.read_text(), "normkit claim --all --page docs/claims.md"
    trust = PAGE.with_name("trust.md").read_text()
    copy.write_text(trust)
    pages.write(copy, engine.together(engine.verdicts(shelf.every())))
    assert copy.read_text() == trust, "normkit claim --all --page docs/trust.md"
    for mark in ("counts", "beds", "errors"):
        assert f"<!-- {mark} -->\n<!-- /{mark} -->" not in trust
    copy.write_text("nothing")
    with pytest.raises(ValueError, match="has no lines"):
        pages.write(copy, [])
