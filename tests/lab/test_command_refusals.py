"""What a comparison or a fit refuses, in a line, before anything is trained."""

import argparse

import numpy as np
import pandas
import pytest
import torch

from normkit.lab import cli, request, rerank
from normkit.lab.fit import run, table
from normkit.lab.plan import clients, data, handed, measures, models, samples, tasks, variants
from normkit.lab.plan.settings import Settings
from normkit.lab.training.own import Build
from normkit.optional import library

COMMANDS = {
    "--variants and --norm exclude each other": "--variants x.yaml --norm dyt",
    "--variants: there is no file 'x.yaml'": "--variants x.yaml",
    "list.yaml: the file must hold a mapping": "--variants list.yaml",
    "one.yaml: variants must be a list": "--variants one.yaml",
    "a name, of which files are called, has at most 160 bytes, not 161": "--variants long.yaml",
    "open.yaml: it is no YAML in UTF-8: while parsing a flow sequence": "--variants open.yaml",
    "there is no variant to train": "--variants none.yaml",
    "--steps and --seconds exclude": "--steps 3 --seconds 3",
    "--warmup must be a share of the run, from 0 to below 1, not 1.0": "--warmup 1",
    "--warmup must be a share of the run, from 0 to below 1, not -0.1": "--warmup -0.1",
    "--lr must be above 0, not 0.0": "--lr 0.1 0",
    "--metric-direction is of a measure": "--metric-direction higher",
    "--device cuda: torch sees no GPU": "--device cuda",
    "--sharded": "--sharded",
    "--federated and --precision fp16": "--federated --precision fp16",
    "--clients must be at least 2, not 1": "--federated --clients 1",
    "--seeds must be at least 1, not 0": "--seeds 0",
    "no data 'nowhere'": "--data nowhere",
}


@pytest.mark.parametrize("message", COMMANDS)
def test_what_a_command_cannot_do_is_refused(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, text in {
        "list": "[1]",
        "open": "variants: [dyt",
        "long": f"variants: [{'é' * 80}a]",
        "one": "variants: dyt",
        "none": "variants: []",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    command = argparse.ArgumentParser()
    cli.add_arguments(command)
    with pytest.raises(ValueError) as refused:
        request.plan_from(command.parse_args(COMMANDS[message].split()))
    assert message in str(refused.value)


def fitting(**given):
    usual = {"data": "rows.npy", "seeds": 1, "steps": 1, "batch": 1, "samples": 1, "depth": None, "hidden": None}
    usual |= {"columns": [], "drop": [], "categories": [], "sep": None, "score": None, "patience": None}
    return run.run(argparse.Namespace(**{**usual, "flow": None, "lr": 0.1, "out": "out", **given}))


ROWS = np.arange(40.0).reshape(20, 2)
TABLES = {"rows": ROWS, "more": np.arange(60.0).reshape(20, 3), "no_images": np.ones((0, 1, 2, 2))}
TABLES["bytes"] = np.ones((4, 1, 2, 2), np.uint8)


def more(name):
    return table.read_more(name, table.Observations(np.ones((2, 1, 2, 2)), [], False))


def saved():
    """Save a data set in a folder, and return what names it."""
    library("datasets").Dataset.from_dict({"n": [1]}).save_to_disk("saved")
    return "hf:saved"


CASES = {
    "--seeds must be at least 1, not 0": lambda: fitting(seeds=0),
    "--samples must be at least 1, not 0": lambda: fitting(samples=0),
    "--patience must be at least 0, not -1": lambda: fitting(patience=-1),
    "--lr must be above 0, not -1": lambda: fitting(lr=-1, data="nowhere.npy"),
    "--sep must be one sign, or tab, not '::'": lambda: fitting(sep="::"),
    "cube.npy: columns are asked for, and it holds no table": lambda: fitting(score="cube.npy"),
    "strings.npy: it must hold numbers": lambda: table.read("strings.npy"),
    "cube.npy: it must be a table": lambda: table.read("cube.npy"),
    "images must hold finite numbers": lambda: table.require_numbers("it", np.full((20, 1, 2, 2), np.nan)),
    "text.npy: it must be an array": lambda: table.read("text.npy"),
    "two.npz: it must hold one array": lambda: table.read("two.npz"),
    "rerank: text.csv must be .npy or .parquet": lambda: rerank.table("text.csv"),
    "rerank: cube.npy must hold rows of numbers": lambda: rerank.table("cube.npy"),
    "rerank: none.npy must hold rows": lambda: rerank.table("none.npy"),
    "rerank: strings.npy must hold": lambda: rerank.table("strings.npy"),
    "leaves one of 3 clients with fewer": lambda: clients.shares(torch.arange(4) * 0, 3, "dirichlet:1", 1),
    "--split looks: batches must be pairs": lambda: clients.look(0.1, 1, 0)(torch.zeros(3)),
    "--split looks: batches must be pairs of inputs": lambda: clients.look(0.1, 1, 0)(
        ((torch.ones(3), torch.ones(3)), 1)
    ),
    "--split looks: batches must be pairs of": lambda: clients.look(0.1, 1, 0)((torch.zeros(3).long(), 1)),
    "has no sample to train on": lambda: samples.BySample(samples.recipe_of([], None), [1], 1, "it"),
    "what a training loop returns has a name alone": lambda: measures.is_named_higher("mine:score", None),
    "vit: patch=3 does not divide": lambda: models.ViT((1, 8, 8), 2, patch=3, dim=4),
    "model 'vit' has no 'size'": lambda: tasks.load(Settings(model="vit:size=3", data="digits")),
    "learns from text, which data 'digits' is not": lambda: tasks.load(Settings(data="digits")),
    "more.npy: samples must be of the shape (1, 2, 2), not (3,)": lambda: more("more.npy"),
    "cube.npy: samples must be of the shape (1, 2, 2), not (2, 2)": lambda: more("cube.npy"),
    "no_images.npy: it holds no samples": lambda: more("no_images.npy"),
    "bytes.npy: it holds uint8, and the density is of float64": lambda: more("bytes.npy"),
    "lists.parquet: column 'a' holds object, not numbers": lambda: table.read("lists.parquet"),
    "data 'mnist' are no signals": lambda: data.signals_of("mnist"),
    "data 'text.npy' cannot be read as arrays": lambda: data.matrices_of("text.npy"),
    "data 'below.npz': classes must be 0, 1, 2, ..., not -1": lambda: data.matrices_of("below.npz"),
    "data 'hf:saved' must have an image and a class label; its columns are ['n']": lambda: data.images_of(
        saved(), None
    ),
    "data 'hf:saved' has no column of text; its columns are n": lambda: data.text_of(saved()),
    "'f' was handed in by a script or a notebook": lambda: handed.find(f"{handed.PREFIX}f#1"),
    "out/plan.json has a variant that cannot be read": lambda: request.saved_variants({"variants": [{"no": 1}]}, "out"),
    "rerank: two.npz must be an array of numbers as numpy.save writes it, not an": lambda: rerank._npy("two.npz"),
    "rerank: lists.parquet has the columns of lists ['a', 'b']; --column": lambda: rerank.table("lists.parquet"),
    "rerank: --column must be one of 'a', 'b', not 'c'": lambda: rerank.table("lists.parquet", "c"),
    "held-out data 'more.npy' have other columns": lambda: tasks._rows(Settings(data="rows.npy", val="more.npy")),
    "gives no batch": lambda: samples.own_data(handed.hand_in([1], "1"), handed.hand_in([], "2"), None, 1),
    "data 'empty.npz' holds no matrices": lambda: data.matrices_of("empty.npz"),
    "names no norm": lambda: Build(variants.Variant("it", norm="original"))(8),
}


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_the_plan_is_refused(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, values in {"strings": ["a"], "cube": np.zeros((2, 2, 2)), "none": np.zeros((0, 2)), **TABLES}.items():
        np.save(tmp_path / f"{name}.npy", np.array(values))
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS)
    np.savez(tmp_path / "empty.npz", points=np.ones((0, 2, 2)), classes=np.ones(0, int))
    np.savez(tmp_path / "below.npz", points=np.eye(2)[None], classes=np.array([-1]))
    if "parquet" in message or "--column must" in message:
        pandas.DataFrame({"a": [[1.0]], "b": [[2.0]]}).to_parquet(tmp_path / "lists.parquet")
    for name in ("text.npy", "text.csv"):
        (tmp_path / name).write_text("no array")
    with pytest.raises(ValueError) as refused:
        CASES[message]()
    assert message in str(refused.value)
