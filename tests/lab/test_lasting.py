"""A headline says how often such findings held at four times the steps, where there is a count and a finding."""

import dataclasses
import json

import pytest
import synthetic_logs

from normkit.lab.report import conclusion, lasting
from normkit.lab.report import page as report

SAYS = "In normkit's own small runs, findings between norms held at four times the steps in 9 of 12 cases"


@pytest.fixture(autouse=True)
def counts(monkeypatch):
    monkeypatch.setattr(lasting, "counts", lambda: {"norm": {"held": 9, "of": 12}})


def headline(folder, gains, **given):
    synthetic_logs.comparison(folder, gains, seeds=6, **given)
    return conclusion.headline(report.load(folder), report.summary(folder))


def test_a_finding_between_norms_has_the_count_of_norms(tmp_path):
    assert headline(tmp_path, {"layernorm": 0.0, "dyt": -0.3}).endswith(SAYS)


def test_without_a_finding_nothing_is_said(tmp_path):
    assert "small runs" not in headline(tmp_path, {"layernorm": 0.0, "dyt": 0.0})


def test_a_comparison_with_a_ladder_tells_it_of_itself(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": -0.3}, seeds=6)
    plain, rows = report.load(tmp_path), report.summary(tmp_path)
    assert lasting.headline(plain, rows) == SAYS
    assert lasting.headline(dataclasses.replace(plain, rungs={1.0: plain}), rows) == ""


def test_of_a_training_loop_of_the_users_own_nothing_is_said(tmp_path):
    assert "small runs" not in headline(tmp_path, {"layernorm": 0.0, "dyt": -0.3}, train="mine:train")


def test_a_twin_of_the_baseline_is_no_other_kind(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": -0.3}, seeds=6)
    path = tmp_path / "plan.json"
    plan = json.loads(path.read_text())
    plan["variants"].append({**plan["variants"][0], "name": "twin", "start": "permuted"})
    path.write_text(json.dumps(plan))
    assert lasting.headline(report.load(tmp_path), report.summary(tmp_path)) == SAYS


def test_what_differs_in_two_ways_has_no_kind(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": -0.3}, seeds=6)
    path = tmp_path / "plan.json"
    plan = json.loads(path.read_text())
    plan["variants"][1]["optimizer"] = "muon"
    path.write_text(json.dumps(plan))
    comparison = report.load(tmp_path)
    assert lasting.kind(comparison) == ""
    assert lasting.headline(comparison, report.summary(tmp_path)) == ""


def test_the_stored_counts_are_of_kinds_that_a_comparison_has(monkeypatch):
    monkeypatch.undo()
    assert set(lasting.counts()) <= set(lasting.KINDS)
    assert all(0 <= row["held"] <= row["of"] for row in lasting.counts().values())
