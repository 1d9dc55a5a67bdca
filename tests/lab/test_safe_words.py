"""Whatever a user's words hold, they are shown and not obeyed: on a terminal, in CSV, LaTeX, HTML and pictures."""

import ast
import csv
import io
import pathlib
import re

import pytest
import synthetic_logs
from helpers import run
from rich.console import Console

import normkit
from normkit import cli, safe
from normkit.lab.plan.plan import Plan, Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import drawing, exports, figures
from normkit.lab.report import page as report
from normkit.lab.screen import Screen, describe_end
from normkit.lab.training import runs

SRC = pathlib.Path(normkit.__file__).parent
NAMES = [
    "base[/x]",
    "=1+1",
    "[base]",
    "\x1b[31mred",
    "<script>x</script>",
    "a$b$c",
    "\u202eover",
    "\\end{tabular}",
    ":train:",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("named")
    synthetic_logs.comparison(root, dict.fromkeys(NAMES, 0.0), seeds=3)
    return root


def test_a_terminal_shows_every_name_and_obeys_none(folder, capsys):
    assert cli.main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    flat = re.sub(r"\s+", "", out)
    assert all(re.sub(r"\s+", "", safe.safe(name, "terminal")) in flat for name in NAMES)
    assert not set("\x1b\u202e") & set(out)


def test_a_screen_shows_the_names_of_what_is_trained_and_of_the_model(tmp_path):
    variants = tuple(Variant(name, norm="rmsnorm") for name in NAMES)
    plan = Plan(Settings(seeds=1, lrs=(0.01,), train="mine[/x]:train"), variants, NAMES[0])
    screen = Screen(plan, runs.open_folder(plan, tmp_path, []), {})
    own = screen.console
    screen.console = Console(file=io.StringIO(), width=200, markup=own._markup, emoji=own._emoji)
    screen.introduce()
    for one in runs.ready(plan, {}):
        screen.note(one, None)
    screen.console.print(screen.picture())
    screen.console.print(describe_end(run(), {"status": "crashed", "error": "\x1b]0;title\x07[/b]"}))
    shown = screen.console.file.getvalue()
    assert all(safe.safe(name, "terminal") in shown for name in [*NAMES, "mine[/x]:train", "\x1b]0;title\x07[/b]"])
    assert "\x1b" not in shown


def test_no_cell_of_a_csv_is_a_formula(folder):
    lines = list(csv.DictReader(io.StringIO(exports.csv_text(report.summary(folder)))))
    assert {line["variant"] for line in lines} == {*NAMES, "'=1+1"} - {"=1+1"}
    assert all(line["loss"] and not line["loss"].startswith("'") for line in lines), "numbers stay numbers"


def test_latex_and_html_escape_their_signs(folder):
    latex = exports.latex_text(report.summary(folder))
    assert latex.count("\\end{tabular}") == 1
    assert r"a\$b\$c" in latex
    assert r"\textbackslash{}end\{tabular\}" in latex
    text = exports.html_text(report.load(folder))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text


def test_pictures_show_names_without_reading_them_as_html_or_mathematics(folder):
    pytest.importorskip("matplotlib")
    comparison = report.load(folder)
    [picture, *_] = figures.pictures(comparison)
    named = {trace["name"] for trace in picture["figure"]["data"]}
    assert "&lt;script&gt;x&lt;/script&gt;" in named
    figure = drawing.draw(picture)
    labels = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert {"<script>x</script>", r"a\$b\$c"} <= labels
    figure.set_layout_engine("none")
    figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.parametrize("word", ["-1.5", "+2e-5", ".5", "plain", "a=b", "'"])
def test_what_is_no_formula_stays_in_csv(word):
    assert safe.safe(word, "csv") == word


@pytest.mark.parametrize("word", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "-1+cmd|' /C calc'!A0", "＝1"])  # noqa: RUF001
def test_what_a_spreadsheet_would_run_has_an_apostrophe(word):
    assert safe.safe(word, "csv") == f"'{word}"


def test_lines_tabs_and_letters_of_any_script_stay():
    text = "Ünïcode\t日本 👩‍🔬\n[/x]"
    assert safe.safe(text, "terminal") == text
    assert safe.safe("\x00\x1b\x7f\x9b\u202e\ud800\r", "terminal") == r"\x00\x1b\x7f\x9b\u202e\ud800\r"


def test_a_place_that_is_none_is_named():
    with pytest.raises(ValueError, match="where must be one of terminal, csv, latex, html, not 'paper'"):
        safe.safe("x", "paper")


def test_an_error_that_names_a_users_word_is_safe(capsys):
    assert cli.main(["text", "map", "\x1b[2Jx", "y.csv", "--column", "z"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_commands_print_by_say_alone():
    others = {"safe.py", "contract", "bench"}
    calls = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in SRC.rglob("*.py")
        if not others & {*path.relative_to(SRC).parts}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []
