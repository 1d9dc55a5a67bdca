"""Densities of a table and classifiers of matrices are tasks like the others, on data that can be learned from."""

import math
import re

import numpy as np
import pytest
import torch
from helpers import settings, trained

from normkit import cli
from normkit.lab.plan import data, tasks
from normkit.lab.plan.plan import Run
from normkit.lab.plan.variants import Variant


@pytest.fixture
def table(tmp_path):
    drawn = np.random.default_rng(0).normal(size=(200, 2))
    drawn[:, 1] = 1000 + 50 * (drawn[:, 0] + 0.2 * drawn[:, 1])
    path = tmp_path / "t.csv"
    np.savetxt(path, drawn, delimiter=",", header="a,b", comments="")
    return str(path)


def test_a_flow_begins_as_a_normal_law_of_standard_columns_and_learns(table, tmp_path):
    task = tasks.load(settings(model="flow:depth=2,hidden=8", data=table, batch=64))
    variant = Variant("a", norm="original", flow="affine-coupling")
    model = task.build(variant, 1)
    with torch.no_grad():
        begun = task.loss(model, (task.data.images, None)).item()
    assert begun == pytest.approx(math.log2(2 * math.pi * math.e) / 2, abs=0.02)  # all rows are standard, not these
    assert task.data.unit == "samples"
    given = {"model": "flow:depth=2,hidden=8", "data": table, "batch": 64, "steps": 30, "eval_every": 30}
    events = trained(tmp_path / "runs", Run(variant, 0.01, 1, "final", 30), **given)
    assert events[-1]["status"] == "done", events[-1]
    # of a normal law whose two numbers share all but 0.2 of their variance: some 0.8 bits below that of unshared ones
    assert [e["loss"] for e in events if e["event"] == "eval"][-1] < begun - 0.3


def test_bytes_are_counted_in_bits_of_a_byte(tmp_path):
    np.save(tmp_path / "i.npy", np.random.default_rng(0).integers(0, 256, (80, 2, 2, 2), dtype=np.uint8))
    task = tasks.load(settings(model="flow:hidden=8", data=str(tmp_path / "i.npy"), batch=32))
    model = task.build(Variant("a", norm="original", flow="nanoflow:depth=1"), 1)
    with torch.no_grad():
        found = task.loss(model, task.data.validation()[0]).item()
    assert 8.0 < found < 8.6  # a normal law costs 0.25 bits more than the even one that the bytes have


@pytest.mark.parametrize("values", [8, 256])
def test_bytes_of_a_table_are_counted_in_bits_of_a_byte_though_its_columns_are_standard(values, tmp_path):
    columns = 100 % values + np.random.default_rng(0).integers(0, values, (2000, 2), dtype=np.uint8)
    np.save(tmp_path / "t.npy", columns)
    task = tasks.load(settings(model="flow:hidden=8", data=str(tmp_path / "t.npy"), batch=64))
    model = task.build(Variant("a", norm="original", flow="affine-coupling"), 1)
    with torch.no_grad():
        bits = task.loss(model, (task.data.images, None)).item()
    assert bits == pytest.approx(math.log2(values) + 0.25, abs=0.05)  # what a normal law costs beside the even one


def test_the_command_compares_flows_and_norms_of_matrices(table, tmp_path, capsys):
    short = ["--steps", "2", "--seeds", "1", "--lr", "0.01", "--engine", "here"]
    flows = ["--flow", "affine-coupling:depth=1", "ferumal:num_points=4,depth=1", "--data", table]
    assert cli.main(["compare", *flows, *short, "--out", str(tmp_path / "f")]) == 0
    told = capsys.readouterr().out
    assert "ferumal:num_points=4,depth=1" in told
    stack = stacked(tmp_path / "stack.npz")
    norms = ["--norm", "original", "liebn:metric=LEM", "--model", "spdnet:dim=2,depth=1", "--data", stack]
    assert cli.main(["compare", *norms, "--metric", "accuracy", *short, "--out", str(tmp_path / "s")]) == 0
    assert "liebn:metric=LEM" in capsys.readouterr().out


def stacked(path, least=0.5, dtype=np.int64, n=3, classes=2):
    drawn = np.random.default_rng(0).normal(size=(40, n, 9))
    values = drawn @ drawn.transpose(0, 2, 1) / 9 + least * np.eye(n)
    np.savez(path, covariances=values.astype(">f8"), labels=np.arange(40, dtype=dtype) % classes)
    return str(path)


@pytest.mark.parametrize("norm", ["original", "riemannian-batchnorm", "gbw-batchnorm"])
def test_an_spdnet_learns_what_covariances_are_of(norm):
    task = tasks.load(settings(model="spdnet", data="spd", batch=64))
    model = task.build(Variant("a", norm=norm), 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.003 if norm == "gbw-batchnorm" else 0.01)
    first = task.loss(model, task.data.validation()[0]).item()
    for step in range(1, 31):
        optimizer.zero_grad()
        task.loss(model, task.data.train(1, step)).backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
    with torch.no_grad():
        assert task.loss(model, task.data.train(1, 31)).item() < 0.95 * first


def test_smaller_matrices_than_six_are_learned_from_without_a_word_on_it(tmp_path):
    task = tasks.load(settings(model="spdnet", data=stacked(tmp_path / "three.npz"), batch=8))
    model = task.build(Variant("a", norm="original"), 1)
    assert [part.weight.shape for part in model.maps] == [(3, 3), (3, 3)]
    assert task.loss(model, task.data.train(1, 1)).isfinite()


def test_the_weight_of_a_norm_of_matrices_stays_positive_definite():
    task = tasks.load(settings(model="spdnet", data="spd", batch=16))
    model = task.build(Variant("a", norm="riemannian-batchnorm"), 1)
    torch.testing.assert_close(model.norms[0].weight, torch.eye(8))
    with torch.no_grad():
        for value in model.norms[0].parameters():
            value.copy_(-torch.ones(8, 8))
    assert torch.linalg.eigvalsh(model.norms[0].weight).min() > 0


def test_drawn_covariances_are_the_same_each_time_and_ill_conditioned():
    one, two = data.covariances(), data.covariances()
    assert torch.equal(one.images, two.images)
    values = torch.linalg.eigvalsh(one.images.double())
    assert values.min() > 0
    assert (values[:, -1] / values[:, 0]).median() > 100
    assert one.labels.bincount().tolist() == [300] * 3


REFUSED = [
    ("--flow affine-coupling", "name it with --data"),
    ("--flow affine-coupling --model decoder --data {table}", "'decoder' is no density"),
    ("--flow affine-coupling --data {table} --norm dyt", "a flow has no norms"),
    ("--flow tarflow:wings=2 --data {table}", "wings"),
    ("--flow jet --data {table}", "event must be"),
    ("--data spd --norm layernorm", "does not fit positive definite matrices.*liebn"),
    ("--data spd --norm liebn --model vit", "does not fit a stream"),
    ("--model vit --data spd --norm original", "learns from images"),
    ("--model spdnet --data digits", "learns from 'spd'"),
    ("--model spdnet:dim=11 --data spd", "dim must be from 1 to 10"),
    ("--data {indefinite}", "smallest eigenvalue of one is -"),
    ("--data {unlabelled}", "must hold matrices"),
    ("--data {stack} --val {larger}", r"held-out data .* are of shape \(4, 4\), and the data of \(3, 3\)"),
    ("--data {stack} --val {third}", r"held-out data .* has classes \['0', '1', '2'\], and the data \['0', '1'\]"),
    ("--flow affine-coupling --data {text}", "column 'a' holds text"),
]


@pytest.mark.parametrize("words, said", REFUSED)
def test_what_is_no_task_is_named(words, said, table, tmp_path, capsys):
    text = tmp_path / "text.csv"
    text.write_text("a,b\n" + "x,1\n2,1\n" * 15)
    places = {
        "table": table,
        "text": text,
        "stack": stacked(tmp_path / "stack.npz"),
        "larger": stacked(tmp_path / "larger.npz", n=4),
        "third": stacked(tmp_path / "third.npz", classes=3),
        "indefinite": stacked(tmp_path / "i.npz", least=-3.0),
        "unlabelled": stacked(tmp_path / "u.npz", dtype=np.float64),
    }
    command = ["compare", *words.format(**places).split(), "--steps", "1", "--seeds", "1", "--engine", "here"]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert re.search(said, told), told
