"""Folders and pickles that were written before edits were values are read as they were then."""

import copy
import importlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_commands import MINE, NAMED

from normkit.surgery import MOVED, saving
from normkit.surgery.commands import example

BEFORE = Path(__file__).parent / "of_before"


@pytest.mark.parametrize(
    ("name", "word", "shape"),
    [
        ("fold", "my_models:images", "2x3x6x6"),
        ("beside", "my_models:beside", "2x3x6x6"),
        ("spiking", "my_models:spiking", "4x2x8"),
        ("crmsnorm", "my_models:embedded", "tokens:2x5"),
        ("swap", "my_models:words", "tokens:2x5"),
        ("fuse", "named:build", "4x8"),
    ],
)
def test_a_folder_gives_the_numbers_that_it_gave(name, word, shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MINE)
    (tmp_path / "named.py").write_text(NAMED)
    model = saving.load(f"{word}@{BEFORE / name}")
    wanted = load_file(BEFORE / "results.safetensors")[name]
    with torch.no_grad():
        torch.testing.assert_close(model(example(model, shape)), wanted, rtol=1e-5, atol=1e-6)


def test_a_pickle_gives_the_numbers_that_it_gave():
    kept = torch.load(BEFORE / "parts.pt", weights_only=False)
    assert len(kept["parts"]) == 9
    for name, part in kept["parts"].items():
        for each in (part, copy.deepcopy(part)):
            with torch.no_grad():
                torch.testing.assert_close(each(kept["inputs"][name]), kept["results"][name], rtol=1e-5, atol=1e-6)
    assert list(kept["parts"]["renamed"].state_dict()) == ["gamma"]


@pytest.mark.parametrize("name", [*MOVED, "edits", "quantizing", "saving"])
def test_a_file_is_imported_by_the_name_that_it_had(name):
    """As one module: a class of a pickle is the class of today."""
    made = importlib.import_module(f"normkit.surgery.{name}")
    assert made is importlib.import_module(f"normkit.surgery.{MOVED.get(name, name)}")
    assert made.__spec__.name == made.__name__ == f"normkit.surgery.{MOVED.get(name, name)}"


def test_what_pickles_name_in_files_that_are_folders_by_now_is_there():
    from normkit.surgery import edits, quantizing

    assert edits.Edit is edits.edit.Edit
    assert quantizing.Quantized is quantizing.weights.Quantized
