"""``normkit rerank``: tables in, the best items and how uneven they are out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import normkit as nk
from normkit import cli
from normkit.inference.hubness import counted
from normkit.lab.rerank import right_items


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Queries near to items of unequal length, of which the long ones are hubs; on disk in the other order of bytes."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    gallery = draw.normal(size=(200, 24)) * np.exp(0.3 * draw.normal(size=(200, 1)))
    made = {"g": gallery, "q": gallery + 0.5 * draw.normal(size=gallery.shape)}
    made["b"] = gallery[:150] + 0.5 * draw.normal(size=(150, 24))
    for name, values in made.items():
        np.save(f"{name}.npy", values.astype(">f8"))
    return {name: torch.from_numpy(values) for name, values in made.items()}


def run(capsys, *words):
    assert cli.main(["rerank", *words]) == 0
    return capsys.readouterr().out


def test_hubs_are_fewer_afterwards_and_the_numbers_are_those_of_the_whole_matrix(tables, capsys):
    words = ("q.npy", "g.npy", "--method", "inverted-softmax:beta=0.2", "--bank", "b.npy", "--count", "4")
    found = json.loads(run(capsys, *words, "--json", "-o", "out.npz"))
    plain = tables["q"] @ tables["g"].T
    want = nk.inverted_softmax(plain, tables["b"] @ tables["g"].T, beta=0.2)
    for when, scores in (("before", plain), ("after", want)):
        for name, value in nk.hubness(scores, top=4)._asdict().items():
            assert found[name][when] == pytest.approx(float(value))
    assert found["full_skewness"]["after"] < 0.7 * found["full_skewness"]["before"]
    assert Path("out.npz").stat().st_mode == Path("q.npy").stat().st_mode  # a folder that is shared stays so
    saved = np.load("out.npz")
    assert (saved["index"] == want.topk(4, dim=1).indices.numpy()).all()
    assert "another best item for" in run(capsys, *words)
    assert cli.main(["rerank", *words, "-o", "out.npz"]) == 0
    assert capsys.readouterr().err == "written to out.npz, in place of an earlier one\n"


def test_parquet_is_read_as_npy_is(tables, capsys):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name in "qg":
        column = arrow.array(tables[name].tolist())
        parquet.write_table(arrow.table({"id": list(range(len(column))), "vector": column}), f"{name}.parquet")
    words = ("--method", "score-normalization", "--bank", "b.npy", "--json", "--cosine")
    assert run(capsys, "q.parquet", "g.parquet", *words) == run(capsys, "q.npy", "g.npy", *words)
    parquet.write_table(arrow.table({"vector": [[1.0], [1.0, 2.0]]}), "odd.parquet")
    assert cli.main(["rerank", "odd.parquet", "g.npy", *words]) == 2
    assert "must have one length" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, why",
    [
        (["q.npy", "g.npy"], "--bank must name 1 for inverted-softmax, a table of other queries, but names 0"),
        (["q.npy", "g.npy", "--method", "score-normalization"], "must name 1 for score-normalization, a background"),
        (["q.npy", "g.npy", "--method", "dual-inverted-softmax"], "a table of other queries and one of other items"),
        (["q.npy", "no.npy", "--bank", "b.npy"], "there is no file no.npy"),
        (["q.npy", "no.npy"], "there is no file no.npy"),
        (["q.npy", "g.npy", "--bank", "b.npy", "--method", "hubness"], "--method must be one of"),
        (["q.npy", "g.npy", "--bank", "b.npy", "-o", "out.txt"], "--output must end in .npz"),
        (["q.npy", "g.npy", "--bank", "b.npy", "-o", "no/out.npz"], "no/out.npz cannot be written: No such file"),
        (
            ["q.npy", "g.npy", "--bank", "b.npy", "--method", "csls:count=3"],
            "csls takes no argument 'count'; it takes k",
        ),
        (["q.npy", "narrow.npy", "--bank", "b.npy"], "gallery must have shape"),
        (["q.npy", "empty.npy", "--bank", "b.npy"], "empty.npy must be an array of numbers"),
        (["q.npy", "words.npy", "--bank", "b.npy"], "words.npy must be an array of numbers"),
        (["q.npy", "words.npy", "--bank", "b.npy"], "Object arrays cannot be loaded"),
        (["q.npy", "nan.npy", "--bank", "b.npy"], "gallery has NaN"),
        (["q.npy", "g.npy", "--bank", "b.npy", "--column", "v"], "--column is of a .parquet file"),
    ],
)
def test_what_cannot_be_read_is_named(tables, words, why, capsys):
    Path("empty.npy").touch()
    np.save("narrow.npy", np.zeros((3, 2)))
    np.save("words.npy", np.array([["a", None]], dtype=object), allow_pickle=True)
    np.save("nan.npy", np.full((3, 24), np.nan))
    assert cli.main(["rerank", *words]) == 2
    assert why in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named_before_the_retrieval(tables, capsys, monkeypatch):
    monkeypatch.setattr("normkit.lab.rerank.retrieve", lambda *tables, **how: pytest.fail("it was retrieved"))
    assert cli.main(["rerank", "q.npy", "g.npy", "--bank", "b.npy", "-o", "no/out.npz"]) == 2
    assert "no/out.npz cannot be written: No such file" in capsys.readouterr().err


def test_items_that_are_counted_must_be_there():
    with pytest.raises(ValueError, match=r"best must lie in 0 .. 2"):
        counted(torch.tensor([[3]]), 3)
    with pytest.raises(ValueError, match="best must not be empty"):
        counted(torch.zeros(0, 2, dtype=torch.int64), 3)


@pytest.mark.parametrize("method", ["csls:k=5", "mutual-proximity"])
def test_recall_is_reported_before_and_after_and_rises_where_hubs_go(tables, method, capsys):
    np.save("truth.npy", np.arange(200))
    words = ("q.npy", "g.npy", "--bank", "b.npy", "--method", method, "--truth", "truth.npy", "--count", "5")
    found = json.loads(run(capsys, *words, "--json"))
    plain = (tables["q"] @ tables["g"].T).topk(5, dim=1).indices
    for k in (1, 5):
        share = (plain[:, :k] == torch.arange(200)[:, None]).any(1).double().mean().item()
        assert found[f"recall@{k}"]["before"] == pytest.approx(share)
        assert found[f"recall@{k}"]["after"] > share
    assert "recall@5" in run(capsys, *words)


def test_several_items_may_be_right_and_queries_without_any_are_left_out(tables, capsys):
    best = (tables["q"] @ tables["g"].T).topk(2, dim=1).indices.numpy()
    truth = np.full((200, 2), -1)
    truth[:50, 1] = best[:50, 1]
    np.save("truth.npy", truth)
    words = ("q.npy", "g.npy", "--bank", "b.npy", "--truth", "truth.npy", "--count", "2", "--json")
    found = json.loads(run(capsys, *words))
    assert (found["recall@1"]["before"], found["recall@2"]["before"]) == (0, 1)


def test_hubs_that_grew_are_warned_of(tables, capsys):
    np.save("flat.npy", np.concatenate([tables["g"][:3], -tables["g"][3:4] * 50]))
    words = ["q.npy", "g.npy", "--bank", "flat.npy", "--method", "inverted-softmax:beta=3"]
    assert cli.main(["rerank", *words]) == 0
    assert "the hubs grew with inverted-softmax: skewness over all items rose from" in capsys.readouterr().err
    assert cli.main(["rerank", "q.npy", "g.npy", "--bank", "b.npy", "--method", "csls"]) == 0
    assert "grew" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "truth, why",
    [
        (np.zeros(3, dtype=int), "for each of 200 queries, but has int64 of shape"),
        (np.zeros(200), "must hold whole numbers"),
        (np.full(200, 200), "must lie in -1 .. 199"),
        (np.full(200, -1), "names no right item"),
    ],
)
def test_a_truth_that_is_none_is_named(tables, truth, why, capsys):
    np.save("truth.npy", truth)
    assert cli.main(["rerank", "q.npy", "g.npy", "--bank", "b.npy", "--truth", "truth.npy"]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("name", ["truth.txt", "missing.npy"])
def test_a_file_that_holds_no_truth_is_named_with_its_option(tables, name, capsys):
    Path("truth.txt").write_text("0 1 2")
    assert cli.main(["rerank", "q.npy", "g.npy", "--bank", "b.npy", "--truth", name]) == 2
    assert f"rerank: --truth must be an .npy that is there, not {name}" in capsys.readouterr().err


def test_the_first_and_the_last_item_may_be_right_and_none_beside_them(tmp_path):
    name = str(tmp_path / "truth.npy")
    for places, allowed in (([0, 2], True), ([-1, 2], True), ([-2, 2], False), ([0, 3], False)):
        np.save(name, np.array(places))
        if allowed:
            assert right_items(name, 2, 3).flatten().tolist() == places
        else:
            with pytest.raises(ValueError, match=r"--truth must lie in -1 .. 2"):
                right_items(name, 2, 3)


def test_csls_is_found_by_its_name(capsys):
    assert cli.main(["list", "csls"]) == 0
    assert "csls" in capsys.readouterr().out
