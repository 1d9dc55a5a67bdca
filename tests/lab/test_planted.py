"""Truths planted in real training, found by the command: what must win wins, what is equal stays equal."""

import numpy
import pytest
from scipy import stats

from normkit import cli
from normkit.lab.plan import findings
from normkit.lab.plan.findings import BETTER, EQUAL, LEVEL, WORSE
from normkit.lab.report import page as report

SMALL = ["--length", "16", "--batch", "8", "--workers", "2", "--threads", "1"]
ALIKE = """
variants:
  - {name: one, norm: rmsnorm}
  - {name: two, norm: rmsnorm}
  - {name: rounded, norm: "rmsnorm:offset=1.0"}
"""


def compared(root, *words):
    assert cli.main(["compare", *SMALL, "--out", str(root), *words]) == 0
    return {row.variant: row for row in report.summary(root)}


@pytest.fixture(scope="module")
def alphabet(tmp_path_factory):
    """A text in which every letter tells the next one."""
    path = tmp_path_factory.mktemp("data") / "alphabet.txt"
    path.write_text("abcdefghijklmnopqrstuvwxyz" * 100)
    return str(path)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("placements")


@pytest.mark.parametrize("baseline, word", [("pre-norm", WORSE), ("post-norm", BETTER)])
def test_without_warm_up_deep_post_norm_must_lose_to_pre_norm(baseline, word, alphabet, out, capsys):
    """At this rate it stalls near the loss of guessing, log(26). Both comparisons are of the same runs."""
    words = ["--model", "decoder:dim=16,depth=8,heads=2", "--data", alphabet, "--placement", "pre-norm", "post-norm"]
    how = ["--lr", "0.03", "--warmup", "0", "--clip", "0", "--steps", "30", "--seeds", "3", "--baseline", baseline]
    rows = compared(out, *words, *how)
    assert list(rows) == ["pre-norm", "post-norm"]
    assert rows["pre-norm"].final.mean < 1 < 3 < rows["post-norm"].final.mean
    other = "post-norm" if baseline == "pre-norm" else "pre-norm"
    assert rows[other].finding.word == word
    assert f"{other} is {word} than {baseline}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def equal(tmp_path_factory):
    root = tmp_path_factory.mktemp("equal")
    (root / "equal.yaml").write_text(ALIKE)
    words = ["--model", "decoder:dim=16,depth=2,heads=2", "--variants", str(root / "equal.yaml"), "--seeds", "20"]
    rows = compared(root / "out", *words, "--steps", "10", "--lr", "0.01")
    return rows, {name: losses(root / "out", name) for name in rows}


def losses(root, variant):
    return {run.seed: run.final() for run in report.load(root).final_runs(variant)}


def test_one_method_under_two_names_gives_the_same_numbers(equal):
    rows, found = equal
    assert found["one"] == found["two"]
    assert (rows["two"].finding.word, rows["two"].finding.p) == (EQUAL, 1.0)


def test_one_method_written_in_two_ways_differs_by_rounding_alone(equal):
    rows, found = equal
    assert found["one"] != found["rounded"]
    assert rows["rounded"].finding.word == EQUAL


def test_a_variant_is_distinguished_from_itself_in_one_comparison_of_twenty(equal):
    """Other seeds on the other side, five of each: of 400 such comparisons, what a binomial at 5 % allows."""
    found = list(equal[1]["one"].values())
    random = numpy.random.default_rng(0)
    false = 0
    for _ in range(400):
        drawn = random.permutation(found)
        sides = {"a": dict(enumerate(drawn[:5])), "b": dict(enumerate(drawn[5:10]))}
        false += findings.findings(sides, "a", share=0)["b"].word in (BETTER, WORSE)
    assert false <= stats.binom.ppf(0.999, 400, LEVEL)


CONTROLS = """
variants:
  - {name: usual, norm: rmsnorm}
  - {name: fewer steps, norm: rmsnorm, steps: 20}
  - {name: smaller batch, norm: rmsnorm, batch: 2}
  - {name: no warm-up, norm: rmsnorm, warmup: 0}
  - {name: twin, norm: rmsnorm, start: permuted}
"""


def test_controls_come_out_as_they_must(tmp_path, capsys):
    """Half the steps are worse, and so are batches of a quarter; another start of the same law is not."""
    (tmp_path / "controls.yaml").write_text(CONTROLS)
    words = ["--model", "decoder:dim=16,depth=2,heads=2", "--variants", str(tmp_path / "controls.yaml")]
    rows = compared(tmp_path / "out", *words, "--steps", "40", "--lr", "0.01", "--seeds", "6")
    assert rows["fewer steps"].finding.word == rows["smaller batch"].finding.word == WORSE
    assert losses(tmp_path / "out", "no warm-up") != losses(tmp_path / "out", "usual")
    assert losses(tmp_path / "out", "twin") != losses(tmp_path / "out", "usual")
    assert rows["twin"].finding.word not in (BETTER, WORSE)
    assert rows["twin"].place is None
    assert "Control: twin, which is usual from another start" in capsys.readouterr().out
    steps = {run.variant: run.end["steps"] for run in report.load(tmp_path / "out").runs}
    assert (steps["usual"], steps["fewer steps"]) == (40, 20)
    read = {run.variant: run.steps[-1]["tokens"] for run in report.load(tmp_path / "out").runs}
    assert read["usual"] == 4 * read["smaller batch"] == 2 * read["fewer steps"]


def test_seeds_go_on_until_it_is_decided(alphabet, tmp_path):
    """Post-norm loses at once; with rmsnorm under two names there is nothing to wait for either."""
    words = ["--model", "decoder:dim=16,depth=8,heads=2", "--data", alphabet, "--placement", "pre-norm", "post-norm"]
    how = ["--lr", "0.03", "--warmup", "0", "--clip", "0", "--steps", "30", "--until-decided", "--seeds", "8"]
    rows = compared(tmp_path, *words, *how)
    assert {row.seeds for row in rows.values()} == {4}
    assert rows["post-norm"].finding.word == WORSE
    assert rows["post-norm"].speed.rounds >= 10
