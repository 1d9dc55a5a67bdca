"""A comparison's folder is refused where code or data have changed, and only there."""

import argparse
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from normkit import prints
from normkit.lab import request
from normkit.lab.plan import exchanges, samples
from normkit.lab.plan.handed import alike, differ

SOURCE = """
import argparse, dataclasses, functools, pathlib, types
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from others import Block, width
import others

MEAN = np.array([0.1] * 8)
LENGTHS = [1, 2]
config = {"w": 16, "act": "relu"}
space = argparse.Namespace(w=16)
START = 0

@dataclasses.dataclass
class Config:
    w: int = 16

made = Config()
tags = {"a", "b", "c"}
ROOT = pathlib.Path(__file__).parent / "data"

class Base(nn.Module):
    def scale(self):
        return 2

class Net(Base):
    hidden = 16
    sizes = [4, 8]

    @property
    def gain(self):
        return 1

    @staticmethod
    def shift():
        return 3

    def forward(self, x):
        def inner():
            class Local:
                size = 5
            return Local
        return x - torch.from_numpy(MEAN) + LENGTHS[0] + len(tags)

def decorate(f):
    @functools.wraps(f)
    def wrapped(*args):
        return f(*args)
    return wrapped

@torch.no_grad()
def quiet():
    return 1.5

@decorate
def wrapped():
    return 1.5

@functools.lru_cache
def cached():
    return 1.5

def of_dict():
    return config["w"], ROOT, __file__

def of_space():
    return space.w

def of_class():
    return made.w

def of_others():
    return Block, others.depth()

def counting():
    global START
    START += 1

def make(w, act=nn.ReLU):
    settings = {"w": w}
    return lambda: (settings["w"], act)

closed = make(16)
part = functools.partial(of_dict, 3)
value = Net.forward

def ragged():
    return [{"ids": torch.arange(4), "cu": torch.arange(2), "tags": {"one", "two"}, "x": np.ones(3)}]

class Sets(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, at):
        return {"x": np.full(3, at), "tags": {"one", "two", "three"}, "y": torch.ones(at)}
"""
OTHERS = "width = 3\n\nclass Block:\n    size = 3\n\ndef depth():\n    return 2\n"
NAMES = ["Net", "quiet", "wrapped", "cached", "of_dict", "of_space", "of_class", "of_others", "counting", "closed"]
NAMES += ["part", "value"]


def written(folder, text=SOURCE, others=OTHERS):
    folder.mkdir(exist_ok=True)
    (folder / "others.py").write_text(others)
    (folder / "mine.py").write_text(text)
    return folder


def read(folder):
    """Prints of what a module in this folder has."""
    for name in ("mine", "others"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        mine = importlib.import_module("mine")
    known = {name: prints.print_of(getattr(mine, name)) for name in NAMES}
    return known | {"Sets": samples.sketch(mine.Sets()), "ragged": prints.print_of_value(mine.ragged())}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return read(written(tmp_path_factory.mktemp("here")))


def test_another_process_with_another_hash_seed_reads_the_same(before, tmp_path):
    assert all(before.values())
    folder = written(tmp_path / "there")
    code = f"import json, pathlib, test_prints; print(json.dumps(test_prints.read(pathlib.Path({str(folder)!r}))))"
    where = {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path, env={**os.environ, **where})
    assert json.loads(done.stdout) == before, done.stderr


def test_comments_docstrings_order_and_counters_change_nothing(before, tmp_path):
    text = SOURCE.replace("    def forward(self, x):", '    def forward(self, x):\n        """Go."""')
    text = text.replace(
        "                size = 5", '                """Five."""\n                # five\n                size = 5'
    )
    text = text.replace("def of_dict():", 'def of_dict():\n    """Read it."""').replace("START = 0", "START = 7")
    text = text.replace('{"w": 16, "act": "relu"}', '{"act": "relu", "w": 16}')
    assert read(written(tmp_path / "there", "# mine\n" + text, "# others\n" + OTHERS)) == before


@pytest.mark.parametrize(
    ("was", "now", "names"),
    [
        ("MEAN = np.array([0.1] * 8)", "MEAN = np.array([0.1] * 7 + [0.2])", "Net value"),
        ("LENGTHS = [1, 2]", "LENGTHS = [1, 3]", "Net value"),
        ('config = {"w": 16', 'config = {"w": 32', "of_dict part"),
        ("Namespace(w=16)", "Namespace(w=32)", "of_space"),
        ("made = Config()", "made = Config(32)", "of_class"),
        ('"b", "c"}', '"b", "d"}', "Net value"),
        ("hidden = 16", "hidden = 32", "Net"),
        ("sizes = [4, 8]", "sizes = [4, 9]", "Net"),
        ("return 1\n", "return 9\n", "Net"),
        ("return 2\n", "return 9\n", "Net"),
        ("return 3\n", "return 9\n", "Net"),
        ("size = 5", "size = 6", "Net value"),
        ("def quiet():\n    return 1.5", "def quiet():\n    return 0.5", "quiet"),
        ("def wrapped():\n    return 1.5", "def wrapped():\n    return 0.5", "wrapped"),
        ("def cached():\n    return 1.5", "def cached():\n    return 0.5", "cached"),
        ("return f(*args)", "return -f(*args)", "wrapped"),
        ("make(16)", "make(32)", "closed"),
        ("partial(of_dict, 3)", "partial(of_dict, 4)", "part"),
        ('/ "data"', '/ "other"', "of_dict part"),
        ("    size = 3", "    size = 4", "of_others"),
        ("    return 2\n", "    return 4\n", "of_others"),
        ("torch.arange(2)", "torch.tensor([0, 2])", "ragged"),
        ('{"one", "two"}', '{"one", "three"}', "ragged"),
        ('"three"}, "y"', '"four"}, "y"', "Sets"),
    ],
)
def test_an_edit_is_seen_by_what_uses_it_alone(was, now, names, before, tmp_path):
    of_others = "of_others" in names
    there = written(
        tmp_path / "there",
        *(SOURCE, OTHERS.replace(was, now)) if of_others else (SOURCE.replace(was, now),),
    )
    after = read(there)
    assert {name for name in before if differ(before[name], after[name])} == set(names.split())


class Noisy(Dataset):
    noise = numpy.random.default_rng()

    def __len__(self):
        return 9

    def __getitem__(self, at):
        return self.noise.normal(), at


class Broken(Noisy):
    def __getitem__(self, at):
        raise KeyError(at)


@pytest.mark.parametrize("data", [Noisy(), DataLoader(Noisy()), Broken()])
def test_data_that_are_others_each_time_or_cannot_be_had_have_no_print(data):
    assert samples.print_handed(data) == ""
    assert not differ("2.1f3a", "")


def test_a_label_that_is_a_plain_number_is_in_the_print():
    one, other = ([(torch.ones(3), label), (torch.ones(3), 0)] for label in (1, 2))
    assert differ(samples.sketch(one), samples.sketch(other))


def test_of_a_package_names_alone_are_read(monkeypatch):
    before = prints.print_of({"act": torch.nn.ReLU, "norm": TensorDataset})
    monkeypatch.setattr(torch.nn.ReLU, "forward", lambda self, x: x)
    assert prints.print_of({"act": torch.nn.ReLU, "norm": TensorDataset}) == before


class Refusing:
    """An object that answers nothing that is asked."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


def test_what_cannot_be_looked_at_has_no_print_and_no_error():
    hold = Refusing()
    assert prints.print_of(lambda: hold) == prints.print_of(hold) == prints.print_of_value([hold]) == ""
    itself = [1]
    itself.append(itself)
    assert prints.print_of(lambda: itself)


def test_prints_of_other_rules_tell_nothing():
    assert not alike("given:net#2.11.1f", "given:net#2.11.2e")
    assert not alike("given:net#2.11.1f", "given:other#2.11.1f")
    assert alike("given:net#1f", "given:net#2.11.2e")
    assert not alike("mine:net", "mine:other")


def test_prints_stay_what_they_were(tmp_path):
    """Folders hold them, and later versions go on with those."""
    assert prints.print_of_value([1, 2.5, "word", None, True]) == "2.908ac64b0bf5d451"
    assert prints.print_of_value({"lr": 0.1, "rows": (1, 2)}) == "2.5a23e92224333224"
    assert [one.hex() for one in samples._prints(torch.arange(2).view(2, 1))] == [
        "c804ce198ec337e3dc762bdd1a09aece",
        "9ea2d098b5f70192f96c06f38d3fbc97",
    ]
    assert re.fullmatch("[0-9a-f]{32}", exchanges.print_of(nn.Linear(2, 3)))
    file = tmp_path / "own.txt"
    file.write_text("A text of one's own.")
    assert [*request.prints_of(request.Settings(data=str(file)))] == [f"{file}#7d2f1400"]


CACHE, COUNTS, HISTORY, ARRAY, CONFIG, STATE = {}, {"calls": 0}, [], torch.zeros(2), {"w": 1}, argparse.Namespace(n=0)


class Counting:
    seen = []

    def __call__(self, key):
        CACHE[key, 1] = CONFIG["w"]
        COUNTS["calls"] += 1
        HISTORY.append(key)
        ARRAY.add_(1)
        STATE.n += 1
        self.seen.append(key)
        mine = [0]
        mine[0] = CONFIG["w"]


def counting(start):
    known, calls = {}, itertools.count()

    def count(key):
        nonlocal start
        start += next(calls)
        known[key] = start
        return Counting()(key)

    return count


def test_what_code_itself_writes_to_is_no_part_of_it():
    """A second comparison in a notebook would otherwise be refused for the cache that the first has filled."""
    count = counting(0)
    before = prints.print_of(count)
    count(1)
    assert before == prints.print_of(count) != ""
    CONFIG["w"] = 2
    assert prints.print_of(count) != before


def test_what_has_no_file_is_a_users_where_it_was_typed():
    assert prints._is_users("__main__", "")
    assert not prints._is_users("builtins", "")
    assert not prints._is_users("json", json.__file__)
    assert prints._is_users("test_prints", __file__)
