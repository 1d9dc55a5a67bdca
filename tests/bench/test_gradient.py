"""Steps of optimizers are raced, each beside its yardstick."""

import importlib.util
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import normkit as nk
from normkit import cli
from normkit.bench import gradient, report


def test_every_method_runs_beside_its_yardstick(capsys):
    given = ["bench", "--room", "gradient", "--sizes", "2x8", "--vocab", "11", "--repeats", "1"]
    assert cli.main(given) == 0
    told = capsys.readouterr().out
    for name in gradient.NAMES:
        assert f"normkit {name}" in told
    assert gradient.YARDSTICK in told


def test_times_are_relative_to_the_yardsticks():
    model = gradient.with_gradients(1, 8, 11)
    rows = gradient.race("grams", model, "1x8", 1, time.perf_counter)
    assert rows[0]["entrant"] == gradient.YARDSTICK
    for row in rows:
        assert row["relative"] == row["seconds"] / rows[0]["seconds"]


def test_states_are_what_the_papers_promise():
    model = gradient.with_gradients(2, 8, 11)
    numbers = dict.fromkeys(("sinkgd", "muon", "grams"), 0)
    for name in numbers:
        parts = gradient.line_up(name, model)[f"normkit {name}"]
        gradient.step_of(parts)()
        numbers[name] = gradient.state_bytes(parts)
    inside = sum(p.numel() for p in gradient.hidden_matrices(model))
    everything = sum(p.numel() for p in model.parameters())
    tensors = len(list(model.parameters()))
    assert numbers["grams"] == 4 * (2 * everything + tensors)
    rest = tensors - len(gradient.hidden_matrices(model))
    assert numbers["muon"] == 4 * (inside + 2 * (everything - inside) + rest)
    assert numbers["sinkgd"] == 4 * (2 * (everything - inside) + rest)


@pytest.mark.parametrize("name", ["muon", "normuon", "grams"])
def test_a_yardstick_steps_each_parameter_once_and_matrices_by_muon_beside_a_method_for_them(name):
    model = gradient.with_gradients(1, 8, 11)
    parts = gradient.yardstick(name, model)
    stepped = [p for part in parts for group in part.param_groups for p in group["params"]]
    assert sorted(map(id, stepped)) == sorted(map(id, model.parameters()))
    assert {part.defaults["lr"] for part in parts} == {gradient.RATE}
    if name == "muon":
        assert all(p.ndim == 2 for group in parts[0].param_groups for p in group["params"])


def test_an_optimizer_is_given_what_it_needs_besides_a_rate():
    assert gradient.needs_of("lawn") == {"free_steps": 1}
    assert gradient.needs_of("muon") == gradient.needs_of("cautious") == {}
    lawn = gradient.line_up("lawn", gradient.with_gradients(1, 8, 11))["normkit lawn"]
    assert [part.param_groups[0]["lr"] for part in lawn] == [gradient.RATE]


def test_a_size_of_another_kind_is_named():
    with pytest.raises(ValueError, match="layers x width"):
        gradient.measure(cli.parser().parse_args(["bench", "--room", "gradient", "--sizes", "2x8x3"]), None)
    assert report.duration(0.001)


def test_numbers_of_another_library_are_held_against_ours(monkeypatch):
    theirs = {"grams": nk.Grams, "adamp": torch.optim.AdamW}
    monkeypatch.setattr(gradient, "of_library", theirs.get)
    assert gradient.apart("grams") == {"pytorch_optimizer Grams": 0}
    [adamp] = gradient.apart("adamp").values()
    assert 0.001 < adamp < 0.1  # weights that a norm makes scale-invariant
    assert gradient.apart("conda") == {}


def test_the_muon_of_its_author_runs_too_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(gradient, "of_library", {}.get)
    monkeypatch.setitem(sys.modules, "muon", SimpleNamespace(SingleDeviceMuonWithAuxAdam=nk.Muon, __spec__="here"))
    assert gradient.apart("muon") == {"Keller Jordan's Muon": 0}
    names = list(gradient.line_up("muon", gradient.with_gradients(1, 8, 11)))
    assert [name for name in names if name != "timm Muon"] == [
        "torch Muon",
        "normkit muon",
        "torch AdamW(foreach=True)",
        "Keller Jordan's Muon",
    ]
    assert ("timm Muon" in names) == (importlib.util.find_spec("timm") is not None)
    monkeypatch.setitem(sys.modules, "muon", SimpleNamespace(__spec__="here"))
    assert gradient.rivals("muon") == {}
