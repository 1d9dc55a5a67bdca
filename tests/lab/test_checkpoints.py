"""A checkpoint holds tensors and plain values, all of the state, and nothing that runs."""

import random
import sys

import numpy
import pytest
import torch
from helpers import run, trained

from normkit.lab import logs
from normkit.lab.files import Damaged, Folder
from normkit.lab.training import checkpoints


def drawn():
    return torch.rand(3).tolist(), numpy.random.normal(size=3).tolist(), random.gauss(0, 1), random.random()


def state(**more):
    return {**dict.fromkeys(checkpoints.PARTS, 0), "chances": checkpoints.chances(), **more}


def test_all_random_numbers_go_on_where_they_were(tmp_path):
    drawn()  # numpy and Python now keep a second normal number
    checkpoints.save(tmp_path / "x.pt", state())
    wanted = drawn()
    assert drawn() != wanted
    checkpoints.set_chances(checkpoints.load(tmp_path / "x.pt")["chances"])
    assert drawn() == wanted


def test_a_flipped_bit_of_a_weight_is_found_which_torch_would_load(tmp_path):
    path, ones = tmp_path / "x.pt", torch.ones(1000)
    checkpoints.save(path, state(training=ones))
    content = bytearray(path.read_bytes())
    content[content.index(ones.numpy().tobytes()) + 2] ^= 1
    path.write_bytes(content)
    assert not torch.equal(torch.load(path, weights_only=True)["training"], ones)
    with pytest.raises(Damaged, match=r"its part .* is not what was written"):
        checkpoints.load(path)


class Strange:
    """Neither a tensor nor a plain value."""


def test_what_could_not_be_read_again_is_not_written_and_the_run_goes_on_without(tmp_path, monkeypatch):
    class Keeping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = torch.nn.Embedding(256, 8), torch.nn.LayerNorm(8)
            self.output = torch.nn.Linear(8, 256)

        def forward(self, x):
            return self.output(self.norm(self.embedding(x)))

        def get_extra_state(self):
            return Strange()

        def set_extra_state(self, state):
            pass

    monkeypatch.setitem(sys.modules, "keeping", type(sys)("keeping"))
    sys.modules["keeping"].make = Keeping
    given = {"model": "keeping:make", "data": "python-docs", "checkpoint_seconds": 0.0}
    assert trained(tmp_path, run(), **given)[-1]["status"] == "done"
    (note,) = logs.read(Folder(tmp_path).log(run().name)).of(logs.NOTE)
    assert note["text"] == (
        "no checkpoints are kept, a stopped run begins again: it holds more than tensors and plain values"
    )
    assert not list((tmp_path / "checkpoints").glob("*.p*"))


def test_random_states_of_gpus_are_kept_where_there_are_gpus(monkeypatch):
    states = [torch.arange(3, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert checkpoints.chances()["cuda"] == (states if there else [])
