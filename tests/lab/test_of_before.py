"""A folder written before logs had recipes and seals is read as it was then, and gone on with."""

import json
import shutil
from pathlib import Path

import pytest

from normkit.lab.plan.findings import SAME
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import page as report
from normkit.lab.training import runs

BEFORE = Path(__file__).parent / "of_before"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(BEFORE, tmp_path / "out")
    return tmp_path / "out"


def test_its_report_has_the_numbers_that_it_had(folder):
    rows = {row.variant: row for row in report.summary(folder)}
    assert report.load(folder).notes == []
    assert {name: round(row.final.mean, 3) for name, row in rows.items()} == {"dyt": 5.609, "layernorm": 5.773}
    assert {(row.lr, row.seeds, row.edge) for row in rows.values()} == {(0.009, 3, "highest")}
    assert rows["dyt"].finding.word == SAME
    assert round(rows["dyt"].finding.difference.mean, 3) == -0.164
    assert "<svg" in report.write(folder).read_text()


def test_the_same_command_takes_its_runs_for_ended(folder):
    there = json.loads((folder / "plan.json").read_text())
    variants = tuple(Variant(**variant) for variant in there["variants"])
    plan = Plan(Settings(**there["settings"]), variants, there["baseline"])
    results = runs.read_results(runs.open_folder(plan, folder, []), plan)
    assert len(results) == 10
    assert runs.ready(plan, results) == []
