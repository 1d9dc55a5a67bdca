"""From a table to a density: what is measured is right, what is written is used, what cannot be fitted is named."""

import csv
import json
import math
import os
import pickle
import random
import re
import warnings
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import normkit as nk
from normkit import cli
from normkit.density._saved import save
from normkit.lab.fit import run, table, training

SHARED = 0.8


def rows(count=600):
    drawn = np.random.default_rng(0).normal(size=(count, 2))
    drawn[:, 1] = 5 + 3 * (SHARED * drawn[:, 0] + math.sqrt(1 - SHARED**2) * drawn[:, 1])
    return drawn


ENTROPY = (math.log2(2 * math.pi * math.e) * 2 + math.log2(9 * (1 - SHARED**2))) / 4  # bits for each of two numbers


def written(path, values, names=("a", "b")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *values])
    return path


def test_a_table_becomes_a_density_that_can_be_loaded(tmp_path, capsys):
    path, out = written(tmp_path / "t.csv", rows()), tmp_path / "out"
    words = f"fit {path} --flow affine-coupling ferumal --steps 80 --hidden 16 --depth 2".split()
    assert cli.main([*words, "--samples", "50", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "normal law" in told
    for one in json.loads((out / "results.json").read_text()):
        assert f"{one['flow']}, seed 0: {one['bits']:.4f} held-out bits per dimension, best at step " in told
    results = {one["flow"]: one["bits"] for one in json.loads((out / "results.json").read_text())}
    assert results["affine-coupling"] == pytest.approx(ENTROPY, abs=0.2)  # of 60 samples: three standard errors
    saved = torch.load(out / "affine-coupling.pt", weights_only=True)
    flow = nk.density.flow(**saved["flow"])
    flow.load_state_dict(saved["state"])
    parts = training.split(table.read(path))
    with torch.no_grad():
        bits = -flow.log_prob(parts.test).mean().item() / (2 * math.log(2))
    assert bits == pytest.approx(results["affine-coupling"], rel=1e-5)
    head, *drawn = csv.reader((out / "samples.csv").open())
    assert head == ["a", "b"]
    assert np.corrcoef(np.array(drawn, dtype=float).T)[0, 1] > 0.5
    page = (out / "index.html").read_text()
    assert "https://" not in page.split("<script", 1)[0]
    learning, calibration, pairs = json.loads(re.search(r'id="figures">(.*?)</script>', page)[1])
    held = {line["name"]: line["y"] for line in learning["data"] if line.get("showlegend", True)}
    for one in json.loads((out / "results.json").read_text()):
        assert held[f"{one['flow']}, seed {one['seed']}"] == [bits for _, _, bits in one["curve"]]
    assert all(0 <= y <= 1 for line in calibration["data"] for y in line["y"])
    assert calibration["data"][-1]["y"] == sorted(calibration["data"][-1]["y"])
    low, high = (line["y"] for line in calibration["data"][:2])
    even, room = np.array(calibration["data"][0]["x"]), 1.36 / len(low) ** 0.5
    assert np.array([low, high]) == pytest.approx(np.array([even - room, even + room]).clip(0, 1))
    assert [pairs["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")] == ["a", "b"]
    assert pairs["data"][0]["x"] == pytest.approx(parts.test[:, 0].tolist())


def test_the_normal_law_and_the_parts_are_as_they_say():
    data = table.require_numbers("rows", rows(4000))
    parts = training.split(data)
    assert [len(part) for part in parts] == [3200, 400, 400]
    together = torch.cat(list(parts)).sort(0).values
    torch.testing.assert_close(together, torch.tensor(rows(4000), dtype=torch.float32).sort(0).values)
    assert training.normal_law(parts, data)[1].mean().item() == pytest.approx(ENTROPY, abs=0.1)


@pytest.mark.parametrize("scales", [(1e-8, 1.0, 1e10), (1.0, 1.0, 1e8), (1e10, 1e10, 1e10), (1e-8, 1e-8, 1e-8)])
def test_the_normal_law_of_columns_of_any_scale_is_that_of_scipy(scales):
    stats = pytest.importorskip("scipy.stats")
    drawn = np.random.default_rng(1).normal(size=(500, 3)) @ np.array([[1, 0.5, -0.2], [0, 1, 0.3], [0, 0, 1]])
    data = table.require_numbers("rows", drawn * scales)
    parts = training.split(data)
    train, test = (part.double().numpy() / scales for part in (parts.train, parts.test))
    law = stats.multivariate_normal(train.mean(0), np.cov(train.T))
    wanted = (np.log(scales).sum() - law.logpdf(test)) / (3 * math.log(2))
    np.testing.assert_allclose(training.normal_law(parts, data)[1].numpy(), wanted, rtol=0, atol=1e-5)


def test_the_normal_law_takes_a_pixel_that_never_changes():
    values = np.random.default_rng(0).normal(size=(60, 1, 2, 2))
    values[:, 0, 0, 0] = 3.0
    data = table.require_numbers("images", values)
    assert training.normal_law(training.split(data), data)[1].isfinite().all()


@pytest.mark.parametrize("count, columns", [(30, 60), (79, 60), (2000, 1)])
def test_the_normal_law_of_few_rows_of_many_columns_leaves_covariances_out(tmp_path, capsys, count, columns):
    values = np.random.default_rng(0).normal(size=(count, columns))
    data = table.require_numbers("rows", values)
    name, bits = training.normal_law(training.split(data), data)
    assert bits.mean().item() == pytest.approx(math.log2(2 * math.pi * math.e) / 2, abs=0.2)
    assert name == ("normal law" if columns == 1 else "normal law without covariances")
    np.save(tmp_path / "t.npy", values)
    words = f"fit {tmp_path / 't.npy'} --steps 2 --hidden 4 --depth 1 -o {tmp_path / 'out'}".split()
    assert cli.main(words) == 0
    assert re.search(rf"{name} +{bits.mean():.4f} +- +- +-\n", capsys.readouterr().out)


@pytest.mark.parametrize("count, changed", [(500, 20), (9000, 1)])
def test_a_column_that_only_changes_where_nothing_is_learned_is_refused(tmp_path, capsys, count, changed):
    values = np.random.default_rng(0).normal(size=(count, 2))
    values[:, 1] = np.arange(count) == changed
    train = training.split(table.require_numbers("rows", values)).train
    assert not train[:4096, 1].any()
    assert bool(train[:, 1].any()) == (count == 9000)
    np.save(tmp_path / "t.npy", values)
    assert cli.main(f"fit {tmp_path / 't.npy'} --flow affine-coupling -o {tmp_path / 'out'}".split()) == 2
    told = f"column 'x1' of {min(400 * count // 500, 4096)} rows that are learned from has one value, 0.0, and so no"
    assert told in capsys.readouterr().err


def test_even_bytes_cost_eight_bits_and_come_back_as_bytes(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (200, 1, 2, 2), dtype=np.uint8)
    data = table.require_numbers("images", values)
    parts = training.split(data)
    assert float(parts.train.min()) >= 0
    assert float(parts.train.max()) < 1
    torch.testing.assert_close((parts.train * 256).floor().max().item(), 255.0)
    assert (
        training.bits(torch.zeros(3), data.values.shape[1:], data.bytes).tolist() == [8.0] * 3
    )  # an even law on [0, 1)
    found = training.fit(data, "tarflow", steps=2, hidden=8, depth=1, layers=1)
    run._write_samples(tmp_path, data, found, 3)
    assert np.load(tmp_path / "samples.npy").dtype == np.uint8


def test_ranks_are_even_under_the_law_itself_and_not_under_another():
    flow = nk.density.flow("affine-coupling", 3, depth=1, hidden=4)
    generator = torch.Generator().manual_seed(0)
    even = torch.linspace(0, 1, 2000, dtype=torch.float64)
    for scale, bound in ((1.0, 0.036), (0.7, None)):  # Kolmogorov's bound that one in a hundred exceeds
        drawn = scale * torch.randn(2000, 3, generator=generator)
        off = (training.ranks(flow, drawn).sort().values - even).abs().max()
        assert (off < bound) if bound else (off > 0.15)


def test_parquet_and_numpy_hold_the_same_table(tmp_path):
    pytest.importorskip("datasets")
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(rows(30), columns=["a", "b"]).to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", rows(30).astype(">f8"))
    np.savez(tmp_path / "t.npz", rows(30).astype(">f8"))
    found = [table.read(tmp_path / f"t.{end}") for end in ("parquet", "npy", "npz")]
    assert all(np.array_equal(one.values, rows(30)) and one.values.dtype.isnative for one in found)
    assert (found[0].names, found[1].names) == (["a", "b"], ["x0", "x1"])


@pytest.mark.parametrize(
    "text, words",
    [
        ("a,b\n1,2\n3,x\n", r"column 'b' holds text, 'x' in row 2"),
        ("a,b\n1,2,3\n", "row 1 has 3 values, and there are 2 columns"),
        ("a,b\n1,2\n", "1 rows are too few"),
        ("a,b\n" + "1,\n2,3\n" * 15, "column 'b' has 15 missing values, the first in row 1"),
        ("a,b\n" + "2,3\n1,inf\n" + "2,4\n" * 30, "column 'b' has an infinite value, in row 2"),
        ("a,b\n" + "1,7\n2,7\n" * 15, "column 'b' has one value, 7.0"),
        ("a,b\n" + "1,1.7e9\n2,1700000300\n" * 15, "column 'b' spreads by 150 around 1.7e.09, where float32 has steps"),
        ("a,a,b\n" + "1,2,3\n2,3,5\n" * 15, "2 columns are named 'a'; rename all but one, or leave all out .*--drop a"),
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ('a,b\n1,2\n"3,4\n' + "5,6\n" * 40_000, r"t\.csv: it is no CSV, or a quote in it is not closed: field"),
        ("\na\n" + "1\n2\n\n3\n" + "4\n5\n" * 10 + "\n", "column 'a' has a missing value, in row 3"),
    ],
)
def test_what_cannot_be_fitted_is_named(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        table.read(path)


@pytest.mark.parametrize("head, names", [("0,1", ["0", "1"]), (",0,1", ["", "0", "1"])])
def test_a_first_row_that_counts_from_0_is_the_header_that_pandas_writes(tmp_path, capsys, head, names):
    path, out = tmp_path / "t.csv", tmp_path / "out"
    lines = [f"{place},{one},{other}" for place, (one, other) in enumerate(rows(30))]
    path.write_text("\n".join([head, *(line.split(",", 3 - len(names))[-1] for line in lines)]))
    found = table.read(path)
    assert found.names == names
    np.testing.assert_array_equal(found.values[:, -2:], rows(30))
    words = ["fit", str(path), "--flow", "affine-coupling", "--steps", "2", "--hidden", "4", "-o", str(out)]
    assert cli.main([*words, "--columns", "1", "0", "--score", str(path)]) == 0
    assert "columns are named 0, 1: a first row of 0, 1, 2 and so on is read as a header" in capsys.readouterr().out
    assert len((out / "scores.csv").read_text().splitlines()) == 31


@pytest.mark.parametrize("head", ["0,2", "1,0", "0.0,1.0"])
def test_a_first_row_of_other_numbers_is_data(tmp_path, head):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([head, *(f"{one},{other}" for one, other in rows(30))]))
    assert (table.read(path).names, len(table.read(path).values)) == (["x0", "x1"], 31)


@pytest.mark.parametrize(
    "head, cells, warned",
    [
        ("blue,-1.2", "bluered", True),
        ("blue,size", "bluered", True),
        ("green,-1.2", "bluered", True),
        ("colour,size", "bluered", False),
        (",size", ["", "red"], False),
        ("0,1", "12", False),
        (",0", "12", False),
    ],
)
def test_a_first_row_that_may_be_data_is_warned_of(tmp_path, head, cells, warned):
    path = tmp_path / "t.csv"
    words = ["blue", "red"] if cells == "bluered" else [*cells]
    path.write_text("\n".join([head, *(f"{words[at % 2]},{one}" for at, (one, _) in enumerate(rows(30)))]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table.read(path, table.Choice(columns=[head.split(",")[1]]))
    told = [
        f"{path}: the first row, {head.replace(',', ', ')}, was read as a header; if it is data, write names above it"
    ]
    assert [str(one.message) for one in caught] == told * warned


def test_digits_joined_by_underscores_are_words_in_a_header_and_in_cells(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1_0,2_0\n" + "1,10_20\n2,20_30\n3,5_10\n" * 10)
    found = table.read(path)
    assert (found.names, len(found.values)) == (["1_0", "2_0"], 30)
    assert found.categories == {"2_0": ["10_20", "20_30", "5_10"]}
    assert found.values[:3].tolist() == [[1, 0], [2, 1], [3, 2]]


def test_columns_of_one_name_are_left_out_together(tmp_path):
    path = written(tmp_path / "t.csv", np.column_stack([rows(30), rows(30)]), ["a", "b", "a", "c"])
    assert table.read(path, table.Choice(drop=["a"])).names == ["b", "c"]


def test_a_file_that_cannot_be_read_is_named_with_a_way_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"town,a\nK\xf6ln,1\n")
    with pytest.raises(ValueError, match=r"t\.csv: it is not UTF-8 at byte 8; save it as UTF-8"):
        table.read(path)
    (tmp_path / "e.npy").touch()
    with pytest.raises(ValueError, match=r"e\.npy: it must be an array"):
        table.read(tmp_path / "e.npy")


def test_flows_and_files_that_do_not_fit_are_named(tmp_path, capsys):
    path = written(tmp_path / "t.csv", rows(30))
    assert cli.main(["fit", str(path), "--flow", "jet"]) == 2
    assert "event must be (channels, height, width) for 'jet'" in capsys.readouterr().err
    assert cli.main(["fit", str(path), "--flow", "spline-coupling:binz=3"]) == 2
    assert "column" not in capsys.readouterr().err
    np.save(tmp_path / "one.npy", rows(30)[:, :1])
    for flow in ("affine-coupling", "ferumal"):
        assert cli.main(["fit", str(tmp_path / "one.npy"), "--flow", flow]) == 2
        assert "one.npy holds 1 column, x0: " in capsys.readouterr().err
    np.save(tmp_path / "images.npy", np.random.default_rng(0).normal(size=(30, 1, 2, 3)))
    assert cli.main(["fit", str(tmp_path / "images.npy"), "--flow", "ferumal"]) == 2
    assert "images.npy holds images of 1x2x3: " in capsys.readouterr().err
    assert cli.main(["fit", str(tmp_path / "none.csv")]) == 2
    assert "there is no such file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="ends in"):
        table.read(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match="lower --lr"):
        training.fit(table.read(path), "affine-coupling", steps=10, lr=1e30, hidden=4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value, count", [(1e39, "a value"), (-1e300, "2 values")])
def test_a_value_that_float32_does_not_hold_is_named(value, count):
    values = rows(30)
    values[[20, 25] if count.startswith("2") else 20, 1] = value
    with pytest.raises(ValueError, match=f"column 'x1' has {count} beyond float32, (the first )?in row 21"):
        table.require_numbers("rows", values)
    with pytest.raises(ValueError, match="images must hold finite numbers of float32; row 21 does not"):
        table.require_numbers("images", values.reshape(30, 1, 2, 1))


@pytest.mark.parametrize(
    "shape, flow, where", [((2,), "affine-coupling", " in column 'x1'"), ((1, 2, 1), "tarflow:patch=1,layers=1", "")]
)
def test_a_row_far_from_all_others_is_named_where_a_flow_has_no_density_of_it(shape, flow, where):
    values = rows(60).reshape(60, *shape)
    row = int(torch.randperm(60, generator=torch.Generator().manual_seed(0))[3])
    values[row].reshape(-1)[1] = 9.96921e36
    words = (
        f"seed 0: it has no finite density of row {row + 1}, which holds 9.97e\\+36{where} and lies far from the rows"
    )
    with pytest.raises(ValueError, match=words):
        training.fit(table.require_numbers("rows", values), flow, steps=2, hidden=4, depth=1)


def test_a_flow_is_named_with_arguments_and_a_column_of_few_values_is_reported(tmp_path, capsys):
    values = np.column_stack([rows(100), np.arange(100) % 3])
    path, out = written(tmp_path / "t.csv", values, ("a", "b", "kind")), tmp_path / "out"
    words = ["fit", str(path), "--steps", "2", "--hidden", "4", "-o", str(out), "--flow"]
    assert cli.main([*words, "spline-coupling", "spline-coupling:bins=3,activation=tanh"]) == 0
    assert re.findall(r"column '(\w+)' has few values", capsys.readouterr().out) == ["kind"]
    saved = torch.load(out / "spline-coupling_bins=3,activation=tanh.pt", weights_only=True)
    assert saved["flow"] == {"name": "spline-coupling", "event": [3], "hidden": 4, "bins": 3, "activation": "tanh"}
    nk.density.flow(**saved["flow"]).load_state_dict(saved["state"])
    assert cli.main([*words, "spline-coupling:binz=3"]) == 2
    assert "did you mean 'bins'" in capsys.readouterr().err


def test_a_sample_beyond_the_range_of_bytes_is_written_as_the_nearest_byte(tmp_path):
    data = table.require_numbers("images", np.zeros((20, 1, 2, 2), dtype=np.uint8))
    drawn = torch.tensor([-0.3, 0.5, 1.0, 1.7]).view(1, 1, 2, 2)
    best = SimpleNamespace(flow=SimpleNamespace(sample=lambda count: drawn))
    run._write_samples(tmp_path, data, best, 1)
    assert np.load(tmp_path / "samples.npy").flatten().tolist() == [0, 128, 255, 255]


def numbered(count=200, sep=";", point=","):
    """A table with a number, a word, and two columns that a density can be fitted to."""
    lines = [
        [str(at), "ab"[at % 2], *(f"{x:.6f}".replace(".", point) for x in row)] for at, row in enumerate(rows(count))
    ]
    return "\n".join(sep.join(line) for line in [["id", "site", "a", "b"], *lines]) + "\n"


def test_columns_are_chosen_and_their_separator_is_recognized(tmp_path):
    path = tmp_path / "t.csv"
    wanted = np.array([[round(x, 6) for x in row] for row in rows(200)])
    for sep, point in ((";", ","), (";", "."), ("\t", "."), (",", "."), ("|", ".")):
        path.write_text(numbered(sep=sep, point=point))
        own = "|" if sep == "|" else None
        for choice in (table.Choice(["b", "a"], sep=own), table.Choice(drop=["id", "site"], sep=own)):
            found = table.read(path, choice)
            assert found.names == ["a", "b"]
            np.testing.assert_array_equal(found.values, wanted)
    for choice, words in (
        (table.Choice(["aa"]), "--columns must be one of"),
        (table.Choice(drop=["c"]), "--drop must be one of"),
        (table.Choice(["a"], ["a"]), "leave no column"),
    ):
        with pytest.raises(ValueError, match=words):
            table.read(path, choice._replace(sep="|"))
    path.write_text(numbered(sep="|").replace("|b|", "|7|"))
    with pytest.raises(ValueError, match=r"column 'site' holds text, 'a' in row 1; leave it out .*--drop site"):
        table.read(path, table.Choice(sep="|"))
    np.save(tmp_path / "t.npy", np.zeros((30, 1, 2, 2)))
    with pytest.raises(ValueError, match="columns are asked for, and it holds no table"):
        table.read(tmp_path / "t.npy", table.Choice(["x0"]))


def test_a_column_that_numbers_the_rows_is_warned_of(tmp_path, capsys):
    path, out = tmp_path / "t.csv", tmp_path / "out"
    path.write_text(numbered())
    words = ["fit", str(path), "--steps", "2", "--hidden", "4", "--flow", "affine-coupling", "-o", str(out), "--drop"]
    assert cli.main([*words, "site"]) == 0
    assert "column 'id' numbers the rows, and says nothing of them; leave it out: --drop id" in capsys.readouterr().out
    assert cli.main([*words, "site", "id"]) == 0
    assert "numbers the rows" not in capsys.readouterr().out


def test_two_seeds_have_a_span_and_one_has_none():
    data = table.require_numbers("rows", rows(60))
    fits = [training.fit(data, "affine-coupling", seed=seed, steps=2, hidden=4, depth=1) for seed in (1, 2)]
    means = [one.bits.mean().item() for one in fits]
    spans = [{line[0]: line[2] for line in run.rows(data, fits[:count])} for count in (1, 2)]
    assert spans[0]["affine-coupling"] == "-"
    assert spans[1]["affine-coupling"] == f"{abs(means[0] - means[1]):.4f}" != "0.0000"


def test_a_loss_that_is_not_finite_is_null_in_the_results(tmp_path):
    data = table.require_numbers("rows", rows(60))
    one = training.fit(data, "affine-coupling", steps=2, hidden=4, depth=1)._replace(curve=[(1, math.nan, 2.0)])
    run.write(tmp_path, "rows", data, [one], 2, run.rows(data, [one]))
    results = json.loads((tmp_path / "results.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert results[0]["curve"] == [[1, None, 2.0]]


def test_a_run_ends_where_it_has_long_been_best():
    data = table.require_numbers("rows", rows(60))
    how = {"steps": 400, "lr": 0.05, "hidden": 16, "depth": 2}
    whole = training.fit(data, "spline-coupling", **how)
    ended = training.fit(data, "spline-coupling", patience=50, **how)
    assert whole.steps[1] == 400
    assert [step for step, *_ in whole.curve] == [*range(10, 401, 10)]
    best, last = ended.steps
    assert last - best == 50
    assert last < 400
    assert ended.curve == whole.curve[: len(ended.curve)]


def test_new_rows_are_scored_by_the_columns_of_the_table(tmp_path, capsys):
    path, new, out = tmp_path / "t.csv", tmp_path / "new.csv", tmp_path / "out"
    path.write_text(numbered())
    new.write_text("b;other;a\n5,0;x;0,0\n500,0;y;-90,0\n")
    words = ["fit", str(path), "--columns", "a", "b", "--steps", "40", "--hidden", "8", "-o", str(out)]
    words += ["--flow", "affine-coupling", "--score"]
    assert cli.main([*words, str(new)]) == 0
    assert "2 new samples, 1 of them less likely than all of the 20 held-out ones" in capsys.readouterr().out
    head, *scored = csv.reader((out / "scores.csv").open())
    assert head == ["row", "bits_per_dimension", "share_less_likely"]
    saved = torch.load(out / "affine-coupling.pt", weights_only=True)
    flow = nk.density.flow(**saved["flow"])
    flow.load_state_dict(saved["state"])
    with torch.no_grad():
        bits = -flow.log_prob(torch.tensor([[0.0, 5.0], [-90.0, 500.0]])) / (2 * math.log(2))
    assert [float(line[1]) for line in scored] == pytest.approx(bits.tolist(), rel=1e-5)
    assert float(scored[0][2]) > 0.5
    samples = list(csv.reader((out / "samples.csv").open()))[1:]
    for word in [word for line in (*scored, *samples) for word in line]:
        assert word == str(np.float32(word)).removesuffix(".0") or word.endswith(".0")
    assert float(scored[1][2]) == 0
    new.write_text("a;b\n1;\n")
    assert cli.main([*words, str(new)]) == 2
    assert "a value is missing or infinite in row 1" in capsys.readouterr().err
    new.write_text("a;c\n1;2\n")
    assert cli.main([*words, str(new)]) == 2
    assert "new.csv lacks columns b of the flow; it has a, c" in capsys.readouterr().err


def test_rows_whose_density_is_no_number_are_the_least_likely(tmp_path):
    data = table.require_numbers("rows", rows(60))
    flow = SimpleNamespace(log_prob=lambda x: torch.where(x[:, 0] > 9, torch.nan, -x.square().sum(1)))
    new = data._replace(values=np.array([[0.0, 0.1], [10.0, 0.0], [-90.0, 0.0]]))
    for held in (torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([torch.nan, 2.0, 3.0, 4.0])):  # as once was saved
        told = run.score(tmp_path, new, flow, held.double())
        _, *lines = csv.reader((tmp_path / "scores.csv").open())
        assert [line[1] for line in lines][1] == "inf"
        assert [float(line[2]) for line in lines] == [1, 0, 0.25 if held.isnan().any() else 0]
        assert f"3 new samples, {0 if held.isnan().any() else 2} of them less likely" in told


def test_a_flow_without_a_density_of_a_held_out_row_is_not_the_best():
    data = table.require_numbers("rows", rows(60))
    one, other = (training.fit(data, "affine-coupling", seed=seed, steps=2, hidden=4, depth=1) for seed in (1, 2))
    parts = training.split(data)
    worse = SimpleNamespace(log_prob=lambda x: torch.where(x[:, 0] == parts.test[2, 0], torch.nan, -x.square().sum(1)))
    one = one._replace(bits=training.bits_of(worse, parts.test, data))
    assert run.best_of_each([one, other]) == {"affine-coupling": other}
    assert run._without_density(one) == "; 1 of 6 held-out rows has no finite density"
    assert run._without_density(other) == ""
    assert run.rows(data, [one])[-1][:4] == ["affine-coupling", "inf", "-", "-"]
    assert run.rows(data, [one, one])[-1][2] == "-"


def colours(count=400):
    """Text of three values of known shares, and a number that depends on it; a rank from 1 to 3."""
    draw = random.Random(0)
    words = draw.choices(["blue", "green", "red"], [0.5, 0.25, 0.25], k=count)
    lines = [f"{word},{draw.gauss(len(word), 0.1):.5f},{draw.randint(1, 3)}" for word in words]
    return "\n".join(["colour,size,rank", *lines]) + "\n"


def test_categories_are_numbers_with_even_noise_and_come_back_as_words(tmp_path, capsys):
    path, out = tmp_path / "t.csv", tmp_path / "out"
    path.write_text(colours())
    words = f"fit {path} --flow spline-coupling --steps 300 --hidden 16 -o {out} --samples 500".split()
    assert cli.main([*words, "--categories", "rank"]) == 0
    told = capsys.readouterr().out
    assert "column 'colour' has 3 categories, blue, green, red: they are 0 to 2 and even noise" in told
    assert "column 'rank' has 3 categories, 1, 2, 3" in told
    assert "few values" not in told
    found = table.read(path, table.Choice(categories=["rank"]))
    assert found.categories == {"colour": ["blue", "green", "red"], "rank": ["1", "2", "3"]}
    assert [found.categories["colour"][int(k)] for k in found.values[:, 0]] == [
        line.split(",")[0] for line in colours().split()[1:]
    ]
    parts = training.split(found)
    assert {*parts.train[:, 0].floor().tolist()} == {0, 1, 2}
    assert 0.4 < parts.train[:, 0].frac().mean() < 0.6
    _, *drawn = csv.reader((out / "samples.csv").open())
    shares = Counter(row[0] for row in drawn)
    assert {*shares} <= {"blue", "green", "red"}
    assert 0.35 < shares["blue"] / 500 < 0.65
    assert {row[2] for row in drawn} == {"1", "2", "3"}


def test_a_column_of_few_numbers_is_said_to_be_categories_perhaps(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(colours(60))
    words = f"fit {path} --flow affine-coupling --steps 2 --hidden 4 -o {tmp_path / 'out'}".split()
    assert cli.main(words) == 0
    assert "or read it as categories: --categories rank" in capsys.readouterr().out


@pytest.mark.parametrize("count, named", [(5, "0, 1, 2, 3, 4:"), (6, "0, 1, 2, 3, 4, ...:")])
def test_five_names_are_named_and_of_more_the_first(count, named, capsys):
    run.warn(table.Observations(np.zeros((2, count)), [str(at) for at in range(count)], bytes=False))
    assert f"columns are named {named}" in capsys.readouterr().out


@pytest.mark.parametrize("count", [60, 4], ids=["all differ", "as few as categories"])
def test_decimals_behind_a_comma_between_tabs_are_no_text(count, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\tb\n" + "".join(f"{at % 9}.5\t{at % count},25\n" for at in range(60)))
    with pytest.raises(ValueError, match="'b' holds '0,25' in row 1: a comma stands before decimals only where ;"):
        table.read(path)


def test_text_that_is_no_category_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,a\n" + "".join(f"n{at},{at / 7}\n" for at in range(60)))
    with pytest.raises(ValueError, match="'name' holds text of 60 values, too many for categories of 60 rows"):
        table.read(path)
    path.write_text("name,a\n" + "".join(f"{'xy'[at % 2]},{at / 7}\n" for at in range(60)) + ",1\n")
    with pytest.raises(ValueError, match="'name' has a missing value, in row 61"):
        table.read(path)
    path.write_text("name,a\n" + "".join(f"x,{at / 7}\n" for at in range(60)))
    with pytest.raises(ValueError, match="'name' has one value, x,"):
        table.read(path)


def test_parquet_has_the_categories_of_its_csv(tmp_path):
    pytest.importorskip("datasets")
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "t.csv"
    path.write_text(colours(60))
    frame = pandas.read_csv(path)
    for kind in ("string", "category"):
        frame.astype({"colour": kind}).to_parquet(tmp_path / "t.parquet")
        for choice in (table.WHOLE, table.Choice(categories=["rank"])):
            one, other = table.read(path, choice), table.read(tmp_path / "t.parquet", choice)
            np.testing.assert_array_equal(one.values, other.values)
            assert one.categories == other.categories


def test_a_saved_flow_scores_new_rows_as_it_did_when_it_was_fitted(tmp_path, capsys, monkeypatch):
    path, new, out = tmp_path / "t.csv", tmp_path / "new.csv", tmp_path / "out"
    path.write_text(colours())
    new.write_text("rank,size,colour\n2,4.0,blue\n3,3.0,red\n1,3.0,blue\n")
    words = f"fit {path} --flow affine-coupling --steps 60 --hidden 8 --categories rank -o {out}".split()
    assert cli.main([*words, "--score", str(new)]) == 0
    saved, other = out / "affine-coupling.pt", tmp_path / "other"
    assert cli.main(["fit", str(saved), "--score", str(new), "-o", str(other)]) == 0
    assert (other / "scores.csv").read_bytes() == (out / "scores.csv").read_bytes()
    assert "in place of" not in capsys.readouterr().out
    assert cli.main(["fit", str(saved), "--score", str(new), "-o", str(other)]) == 0
    assert f"{other / 'scores.csv'}, in place of an earlier one: 3 new samples" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)  # not beside the flow, but where -o says
    assert cli.main(["fit", str(saved), "--score", str(new)]) == 0
    assert (tmp_path / "normkit-fit" / "scores.csv").is_file()
    assert nk.density.load(saved).sample(2).shape == (2, 3)
    capsys.readouterr()
    new.write_text("rank,size,colour\n2,4.0,pink\n")
    for more, said in (
        (["--score", str(new)], "column 'colour' holds 'pink' in row 1, and its categories are blue, green, red"),
        ([], "--score FILE names what it is to score"),
        (["--score", str(new), "--drop", "size"], "--drop is for data"),
        (["--score", str(new), "--steps", "9"], "--steps is for data"),
        (["--score", str(new), "--depth", "2"], "--depth is for data"),
        (["--score", str(new), "--patience", "0"], "--patience is for data"),
    ):
        assert cli.main(["fit", str(saved), "-o", str(other), *more]) == 2
        assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path, capsys):
    path = written(tmp_path / "t.csv", rows(30))
    words = ["fit", str(path), "--steps", "2", "--hidden", "4", "--flow", "affine-coupling", "-o"]
    for place, why in ((path, "File exists"), (path / "out", "Not a directory"), ("/proc/no", "No such file")):
        assert cli.main([*words, str(place)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"{place} cannot be written: {why}" in err


def test_a_fit_into_the_folder_of_another_names_what_stays_of_that(tmp_path, capsys):
    path, out = written(tmp_path / "t.csv", rows(30)), tmp_path / "out"
    words = ["fit", str(path), "--steps", "2", "--hidden", "4", "-o", str(out), "--flow"]
    assert cli.main([*words, "affine-coupling", "affine-coupling:depth=1", "--score", str(path)]) == 0
    (out / "notes.txt").write_text("mine")
    assert "earlier" not in capsys.readouterr().out
    assert cli.main([*words, "affine-coupling:depth=1"]) == 0
    told = f"{out} holds an earlier fit, which is written over; affine-coupling.pt, scores.csv of it stay"
    assert capsys.readouterr().out.startswith(f"{told}\n")
    np.save(tmp_path / "i.npy", np.random.default_rng(0).normal(size=(30, 2, 2, 2)))
    images = ["fit", str(tmp_path / "i.npy"), "--steps", "2", "--flow", "nanoflow:depth=1", "-o", str(out)]
    assert cli.main(images) == 0
    assert ", affine-coupling_depth=1.pt, samples.csv, scores.csv of it stay\n" in capsys.readouterr().out


def test_a_flow_that_fails_leaves_the_others_which_are_written(tmp_path, capsys, monkeypatch):
    path, out = written(tmp_path / "t.csv", rows(60)), tmp_path / "out"
    words = ["fit", str(path), "--steps", "2", "--hidden", "4", "-o", str(out), "--seeds", "2", "--flow"]
    flows = ["affine-coupling", "ferumal", "affine-autoregressive"]
    fit_one = training.fit

    def stop_at(name, seeds, why):
        def fit(data, flow, *, seed, **how):
            if flow == name and seed in seeds:
                raise why
            return fit_one(data, flow, seed=seed, **how)

        monkeypatch.setattr(run, "fit", fit)

    def left():
        return {file.name: file.read_bytes() for file in out.iterdir()}

    diverged = ValueError("flow 'ferumal': its bits are inf; try a lower --lr")
    stop_at("affine-coupling", [0], KeyboardInterrupt())
    assert cli.main([*words, *flows]) == 130
    assert left() == {}
    stop_at("ferumal", [0], SystemExit("killed"))
    monkeypatch.setattr(run, "conclude", lambda *given: None)
    with pytest.raises(SystemExit, match="killed"):
        cli.main([*words, *flows])
    assert list(left()) == ["affine-coupling.pt"]
    monkeypatch.undo()
    stop_at("ferumal", [0, 1], diverged)
    assert cli.main([*words, *flows]) == 1
    shown, error = capsys.readouterr()
    assert error == "normkit fit: flow 'ferumal': its bits are inf; try a lower --lr\n" * 2
    for table_of in (shown, (out / "index.html").read_text()):
        assert re.search(r"ferumal, seed 1(\s+|</th><td>)not fitted", table_of)
    assert [one["flow"] for one in json.loads((out / "results.json").read_text())] == [flows[0]] * 2 + [flows[2]] * 2
    assert {*left()} == {"samples.csv", "results.json", "index.html", *(f"{name}.pt" for name in flows[::2])}
    stop_at("affine-autoregressive", [1], KeyboardInterrupt())
    assert cli.main([*words, *flows, "--score", str(path)]) == 130
    shown = capsys.readouterr().out
    assert re.search("affine-autoregressive, seed 1 +not fitted", shown)
    assert len(json.loads((out / "results.json").read_text())) == 5
    assert len((out / "scores.csv").read_text().splitlines()) == 61
    before = left()
    stop_at("ferumal", [0, 1], diverged)
    assert cli.main([*words, "ferumal"]) == 2
    assert left() == before
    assert cli.main([*words, "affine-coupling", "ferumal"]) == 1
    assert f"{out / 'ferumal.pt'} is of the earlier fit" in capsys.readouterr().out
    before = left()

    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "fit", fit_one)
    monkeypatch.setattr(nk.density.Flow, "sample", stop)
    assert cli.main([*words, "affine-coupling"]) == 130
    assert left() == before


def test_no_file_that_is_read_or_is_of_another_page_is_written_over(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path, new = written(tmp_path / "samples.csv", rows(60)), written(tmp_path / "scores.csv", rows(3))
    table_of = written(tmp_path / "t.csv", rows(60))
    (tmp_path / "index.html").write_text("mine")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    way = "name another folder with --out\n"
    for words, why in (
        (["samples.csv"], "samples.csv would be written over"),
        ([str(table_of), "--score", "scores.csv"], "scores.csv would be written over"),
        ([str(table_of)], "index.html exists already, and is of no fit"),
    ):
        assert cli.main(["fit", *words, "--steps", "2", "-o", "."]) == 2
        assert capsys.readouterr().err == f"normkit fit: {why}; {way}"
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert cli.main(["fit", str(path), "--steps", "2", "--hidden", "4", "-o", "out", "--score", str(new)]) == 0
    saved = str(tmp_path / "out" / "spline-autoregressive.pt")
    (tmp_path / "out" / "scores.csv").write_bytes(new.read_bytes())
    capsys.readouterr()
    assert cli.main(["fit", saved, "--score", "out/scores.csv", "-o", "out"]) == 2
    assert capsys.readouterr().err == f"normkit fit: out/scores.csv would be written over; {way}"


def test_a_flow_of_before_it_knew_its_columns_loads_and_does_not_score(tmp_path, capsys):
    made = nk.density.flow("affine-coupling", 2)
    recipe = {"name": "affine-coupling", "event": (2,)}
    torch.save({"flow": recipe, "state": made.state_dict()}, tmp_path / "old.pt")
    x = torch.randn(3, 2)
    assert nk.density.load(tmp_path / "old.pt").log_prob(x).equal(made.log_prob(x))
    assert cli.main(["fit", str(tmp_path / "old.pt"), "--score", "x.csv"]) == 2
    assert "does not say of which columns it is" in capsys.readouterr().err


def test_a_flow_that_is_damaged_names_its_file(tmp_path):
    path = tmp_path / "flow.pt"
    recipe = {"name": "spline-coupling", "event": (2,), "depth": 1, "hidden": 4}
    made = nk.density.flow(**recipe)
    save(path, made, recipe)
    whole, x, draw, refused = path.read_bytes(), torch.randn(5, 2), random.Random(0), 0
    for turn in range(300):
        at, bit = draw.randrange(len(whole)), 1 << draw.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] if turn % 2 else whole[:at])
        error = ""
        try:
            loaded = nk.density.load(path)
        except ValueError as refusal:
            error, refused = str(refusal), refused + 1
        assert str(path) in error or loaded.log_prob(x).equal(made.log_prob(x))
    assert refused > 200
    torch.save({"flow": {}}, path)
    with pytest.raises(ValueError, match=r"flow\.pt is no flow, or is damaged: it has not the parts of one"):
        nk.density.load(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match=r"flow\.pt is no flow"):
        nk.density.load(path)
    assert not list(tmp_path.glob("ran"))


class Malicious:
    """What runs code where it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("ran",))


def test_a_run_that_ends_before_its_steps_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).standard_normal((40, 2)))
    command = ["fit", "rows.npy", "--flow", "spline-coupling", "--depth", "1", "--hidden", "8", "--lr", "0.1"]
    assert cli.main([*command, "--steps", "40", "--patience", "2"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("spline-coupling, seed 0"))
    best, last = re.search(r"best at step (\d+) of (\d+);", line).groups()
    assert int(last) - int(best) == 2
    assert line.endswith("; it ended as 2 steps brought no fewer bits, and --patience 0 takes all 40")
    assert cli.main([*command, "--steps", "40", "--patience", "0"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("spline-coupling, seed 0"))
    assert re.search(r"best at step \d+ of 40$", line)
