"""`normkit bench --room density`, `manifold` and `text`: flows, matrices and words, beside other libraries."""

import argparse
import itertools
import json
import time

import pytest
import torch

from normkit import cli, create
from normkit.bench import _authors, _steps, density, manifold, text
from normkit.text.samples import Task


@pytest.mark.parametrize(
    "room, size, names",
    [
        ("density", "16x2", ["affine-autoregressive", "rational-quadratic-spline"]),
        ("manifold", "2x3x4x4", ["liebn", "gbw-batchnorm", "gyrobn-grassmann"]),
    ],
)
def test_every_row_tells_what_ran_beside_us(room, size, names, tmp_path, capsys):
    words = ["bench", "--room", room, *names, "--sizes", size, "--repeats", "1", "--json", str(tmp_path / "out.json")]
    assert cli.main(words) == 0
    told = capsys.readouterr().out
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["method"].partition(":")[0] for row in rows} == set(names)
    ours = {row["method"]: row["seconds"] for row in rows if row["entrant"] == "normkit"}
    for row in rows:
        assert row["seconds"] > 0
        others = row["entrant"] != "normkit"
        assert row["relative"] == (row["seconds"] / ours[row["method"]] if others else None)
    for name in {"density": ["zuko", "nflows", "normflows"], "manifold": ["spd_learn"]}[room]:
        raced = name in {row["entrant"] for row in rows}
        assert raced or f"{name} did not race" in told


def test_a_token_has_a_time_of_its_own(monkeypatch):
    monkeypatch.setattr(density, "TOKENS", (4, 8))
    rows = density.sampling(1, time.perf_counter)
    assert [row["token"] * count for row, count in zip(rows, (4, 8), strict=True)] == [r["seconds"] for r in rows]


@pytest.mark.parametrize("study, size", [(density, [(4, 2, 2)]), (manifold, [(4, 3, 2)])])
def test_a_size_that_does_not_fit_is_named(study, size):
    words = "x".join(map(str, size[0]))
    options = argparse.Namespace(sizes=words, names=[], repeats=1)
    with pytest.raises(ValueError, match="--sizes"):
        study.measure(options, None)


def test_what_does_not_import_did_not_race():
    assert _steps.install("no_such_library") is None
    assert _steps.missing([{}], "no_such_library")[0]["absent"] == {
        "no_such_library": "pip install no_such_library brings it"
    }


@pytest.mark.parametrize("name", density.RACES)
def test_who_is_there_races_and_takes_the_same_step(name):
    calls = density.RACES[name](8, 4)
    rivals = {"zuko"} if name in ("affine-coupling", "rational-quadratic-spline") else {"zuko", "normflows"}
    there = {rival for rival in rivals if _steps.install(rival) is not None}
    assert {"normkit"} | there <= set(calls) <= {"normkit", "nflows"} | rivals
    for call in calls.values():
        call()


@pytest.mark.parametrize("name, options", [("gbw-batchnorm", {}), ("gyrobn-grassmann", {"p": 3})])
def test_the_authors_computation_is_that_of_the_norm(name, options):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(9, 6, 12, generator=g, dtype=torch.float64)
    x = torch.linalg.qr(x[:, None, :, :3]).Q if options else x @ x.mT / 12
    found = []
    for module in (create(name, 6, **options), _authors.GyroGrassmann(6, 3) if options else _authors.GBW(6)):
        given = x.clone().requires_grad_()
        y = module.double()(given)
        (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)).sum().backward()
        found.append([y.detach(), given.grad, module.scale.grad])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-9)


def test_words_are_measured_one_thing_after_the_other(monkeypatch, capsys):
    for name in ("countries", "cities", "diagnoses"):
        monkeypatch.setattr(text, name, lambda name=name: f"the {name}")
    monkeypatch.setattr(text, "accuracy", lambda title, task: [{"task": title, "entrant": task}])
    monkeypatch.setattr(text, "speeds", lambda repeats, clock: [{"task": repeats}])
    monkeypatch.setattr(text, "memory", lambda: [{"task": "million"}])
    monkeypatch.setattr(text, "WORDS", 200)
    ticks = itertools.count()
    rows = text.measure(argparse.Namespace(repeats=7), lambda: next(ticks))["rows"]
    assert [row["task"] for row in rows] == ["countries", "cities", "diagnoses", 7, "200 words", "200 words", "million"]
    assert [row["entrant"] for row in rows[:3]] == ["the countries", "the cities", "the diagnoses"]
    assert [row["rate"] for row in rows[4:6]] == [200, 200], "a tick for all words"
    assert "rewriting" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:Normalizer.tune")
def test_each_part_is_measured_by_what_its_mentions_mean():
    words = ["aspirin", "ibuprofen", "paracetamol", "morphine", "codeine", "warfarin", "heparin", "insulin"]
    nothing = ["bicycle", "window", "umbrella", "xylophone"]
    task = Task(
        {word[:3]: [word, word[::-1]] for word in words}, words + nothing, [[w[:3]] for w in words] + [None] * 4
    )
    rows = list(text.accuracy("drugs", task))
    assert [row["entrant"] for row in rows] == ["ngrams", "aliases", "ensemble"]
    for row in rows:
        assert (row["entries"], row["names"], row["mentions"], row["unlinkable"]) == (8, 16, 12, 4)
        assert row["accuracy@1"] == row["accuracy"] == row["nil_f1"] == 1


def test_what_is_held_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(text, "MILLION", 1000)
    [row] = text.memory()
    assert row["task"] == "1,000 names"
    assert row["accuracy@1"] > 0.9
    assert 2**24 < row["bytes"] < text.LIMIT
