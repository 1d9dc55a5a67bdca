"""`normkit bench --room weight`: reparametrizations on whole models, in turn."""

import json

import torch

from normkit.cli import main


def test_reparametrizations_race_on_a_decoder(tmp_path, capsys):
    words = ["bench", "--room", "weight", "weight-norm", "spectral-norm", "--sizes", "2x8x16", "--vocab", "11"]
    assert main([*words, "--repeats", "1", "--json", str(tmp_path / "found.json")]) == 0
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    entrants = [row["entrant"] for row in rows]
    assert entrants == ["plain", "weight-norm", "spectral-norm", "torch weight_norm", "torch spectral_norm"]
    assert torch.full((2,), 1e-39).mul(2).min() > 0  # small numbers are numbers again
    assert len({row["layers"] for row in rows[1:]}) == 1
    assert "over plain" in capsys.readouterr().out
