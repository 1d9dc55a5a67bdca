"""The benches of test time, low precision and many owners of data: small races, and what their tables say."""

import json

import pytest
import torch

from normkit import cli
from normkit.bench import quant


@pytest.mark.parametrize(
    "room, size, others",
    [("inference", "16x64x8", 7), ("quant", "2x16x32", 1), ("federated", "3x5000", 2)],
)
def test_each_room_has_a_table_with_what_it_is_set_beside(room, size, others, tmp_path, capsys):
    file = tmp_path / "found.json"
    assert cli.main(["bench", "--room", room, "--repeats", "1", "--sizes", size, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == others
    lines = capsys.readouterr().out.splitlines()
    for row in rows:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["other"])
        [line] = [line for line in lines if line.startswith(f"{row['entrant']} ")]
        assert size in line
        assert ("missed" in line) == (row["goal"] is not None and row["ratio"] > row["goal"])


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["mano", "--room", "inference", "--sizes", "4x8x2"], "normalizes no scores"),
        (["--room", "inference", "--sizes", "4x8"], "queries x gallery x features"),
        (["--room", "federated", "--sizes", "4x8x2"], "clients x parameters"),
    ],
)
def test_what_cannot_be_raced_is_refused(words, wanted, capsys):
    assert cli.main(["bench", *words]) == 2
    assert wanted in capsys.readouterr().err


def test_groups_of_four_bits_err_by_half_a_step_at_most():
    x = torch.randn(2, 3, 128)
    low, high = x.reshape(-1, 64).aminmax(dim=1)
    apart = (quant.in_groups(x) - x).abs().reshape(-1, 64).amax(1)
    assert (apart <= (high - low) / 30 + 1e-6).all()
