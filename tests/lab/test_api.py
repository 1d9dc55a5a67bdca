"""`nk.compare`: the command from Python, with what a script or a notebook defines itself."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TINY, all_numbers
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import forked
import normkit as nk
from normkit import cli
from normkit.lab.api import _call_text, options_of
from normkit.lab.report import figures
from normkit.lab.report.page import reading
from normkit.lab.result import Result
from normkit.lab.training import engines
from normkit.optional import at_hand

SMALL = {"length": 16, "batch": 4, "steps": 8, "seeds": 2, "lr": 0.01, "threads": 1}


class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), norm(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


def numbered(count=60):
    """Samples that carry their own number."""
    return TensorDataset(torch.arange(count).float()[:, None].repeat(1, 4) / count, torch.arange(count) % 2)


def here(root, **given):
    return nk.compare(**{**SMALL, "engine": "here", "out": root, "norms": ["layernorm", "dyt"], **given})


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return here(tmp_path_factory.mktemp("api") / "out", model=TINY)


def test_data_that_the_model_does_not_take_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"Net' does not take data 'python-docs' \(int64 4x17, taken where none are"):
        here(tmp_path, model=Net)
    with pytest.raises(ValueError, match="model 'lambda' has its own placement"):  # without its print
        here(tmp_path, model=lambda: Net(nn.LayerNorm), data=numbered(), placements=["peri-norm"])
    wide = TensorDataset(torch.zeros(60, 5), torch.arange(60) % 2)
    with pytest.raises(ValueError, match=r"does not take data .* \(\(float32 4x5, int64 4\)\): mat1 and mat2"):
        here(tmp_path, model=Net, data=wide)
    images = TensorDataset(torch.zeros(60, 3, 8, 8), torch.arange(60) % 2)
    with pytest.raises(ValueError, match="its argument norm makes norms of the last axis"):
        here(tmp_path, model=lambda norm: nn.Sequential(nn.Conv2d(3, 4, 3), norm(4)), data=images)


def test_the_numbers_are_those_of_the_command(result, tmp_path, capsys):
    words = ["--model", TINY, "--length", "16", "--batch", "4", "--steps", "8", "--seeds", "2", "--lr", "0.01"]
    words += ["--norm", "layernorm", "dyt", "--threads", "1", "--engine", "here", "--out", str(tmp_path / "out")]
    assert cli.main(["compare", *words]) == 0
    assert all_numbers(tmp_path / "out") == all_numbers(result.folder)
    plans = [json.loads((root / "plan.json").read_text()) for root in (tmp_path / "out", result.folder)]
    assert plans[0]["settings"] == plans[1]["settings"]
    assert plans[0]["variants"] == plans[1]["variants"]
    assert plans[1]["command"][0].startswith("nk.compare(")


def test_the_result_tells_its_table_findings_and_report(result):
    assert [row["variant"] for row in result.table.to_dict("records")] == [row.variant for row in result.rows]
    assert {"loss", "loss_half", "finding", "p", "step_time_ratio", "lr"} <= set(result.table.columns)
    assert list(result.findings) == ["dyt"]
    assert result.report.is_file()
    assert result.headline in str(result)
    assert str(result.report) in str(result)
    assert "2 variants" in repr(result)
    assert result._repr_html_().count("<tr>") == 3


def test_without_pandas_the_table_is_a_list(result, monkeypatch):
    monkeypatch.setattr("normkit.lab.result.at_hand", lambda name: None)
    assert [type(row) for row in result.table] == [dict, dict]


def test_it_is_written_as_csv_and_latex(result, tmp_path):
    text = result.to_csv(tmp_path / "table.csv")
    assert text == (tmp_path / "table.csv").read_text()
    assert [line.split(",")[0] for line in text.splitlines()] == ["variant", *(row.variant for row in result.rows)]
    latex = result.to_latex()
    assert all(rule in latex for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    assert not re.search(r"(?<!\\)[%#_](?! \\usepackage)", latex.partition("\n")[2])


def test_the_command_writes_them_as_well(result, capsys):
    for form, ending, text in (("csv", "csv", result.to_csv()), ("latex", "tex", result.to_latex())):
        assert cli.main(["report", str(result.folder), "--export", form]) == 0
        assert f"table: {result.folder / 'table'}.{ending}" in capsys.readouterr().out
        assert (result.folder / f"table.{ending}").read_text() == text


def test_pictures_are_written_for_elsewhere(result, capsys):
    words = ["report", str(result.folder), "--export", "svg"]
    if at_hand("matplotlib") is None:
        assert cli.main(words) == 2
        assert capsys.readouterr().err.endswith("pip install matplotlib\n")
        return
    titles = [one["title"] for one in figures.pictures(result.comparison)]
    assert cli.main(words) == 0
    assert f"pictures: {len(titles)} in {result.folder / 'pictures'}" in capsys.readouterr().out
    files = sorted((result.folder / "pictures").glob("*.svg"))
    assert len(files) == len(titles) >= 6
    assert "held-out-loss.svg" in [file.name for file in files]
    assert all(file.read_text().rstrip().endswith("</svg>") for file in files)


def test_matplotlib_draws_what_plotly_does(result):
    if at_hand("matplotlib") is None:
        return
    axes, plotly = result.draw("held-out").axes[0], result.plot("held-out")
    means = {trace.name: trace for trace in plotly.data if trace.fill is None}
    drawn = {line.get_label(): line for line in axes.lines if line.get_label() in means}
    assert drawn.keys() == means.keys() == {"layernorm", "dyt"}
    for name, line in drawn.items():
        assert list(line.get_ydata()) == list(means[name].y)
    assert axes.get_ylim() == tuple(plotly.layout.yaxis.range)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(drawn)
    assert len({line.get_linestyle() for line in drawn.values()}) == 2
    with pytest.raises(ValueError, match="form must be one of 'svg', 'png', not 'gif'"):
        result.save_pictures(form="gif")


def test_variants_may_have_numbers_of_their_own(tmp_path):
    made = [{"name": "long", "norm": "layernorm"}, {"norm": "dyt", "steps": 4, "lr": 0.003, "warmup": 0.5, "batch": 2}]
    found = here(tmp_path, model=TINY, norms=None, variants=[*made, "rmsnorm"], seeds=1)
    short = "dyt+steps=4+lr=0.003+warmup=0.5+batch=2"
    assert [v["name"] for v in found.comparison.plan["variants"]] == ["long", short, "rmsnorm"]
    runs = {run.variant: run for run in found.comparison.runs}
    assert {name: run.end["steps"] for name, run in runs.items()} == {"long": 8, short: 4, "rmsnorm": 8}
    assert runs[short].lr == 0.003
    tokens = {name: run.steps[-1]["tokens"] for name, run in runs.items()}
    assert tokens == {"long": 8 * 4 * 16, short: 4 * 2 * 16, "rmsnorm": 8 * 4 * 16}


def test_a_picture_is_drawn_by_its_title(result):
    figure = result.plot()
    assert len(figure.data) >= 2
    assert "var(" not in figure.to_json()
    assert result.plot("training").layout.yaxis.title.text == "loss"
    with pytest.raises(ValueError, match="there is no picture 'spectrum'; there are 'Held-out loss', "):
        result.plot("spectrum")


def test_a_result_is_found_again(result, tmp_path):
    assert str(Result(result.folder)) == str(result)
    with pytest.raises(ValueError, match="there is no"):
        Result(tmp_path)


def test_the_same_call_trains_nothing_and_another_is_refused(tmp_path):
    data = DataLoader(numbered(), 8, shuffle=True)
    here(tmp_path, model=Net, data=data)
    before = all_numbers(tmp_path)
    here(tmp_path, model=Net, data=data)
    assert all_numbers(tmp_path) == before
    with pytest.raises(ValueError, match=r"another comparison \(data: the DataLoader is another than it was"):
        here(tmp_path, model=Net, data=DataLoader(numbered(61), 8, shuffle=True))


def test_what_the_caller_draws_next_and_its_threads_are_as_before(tmp_path):
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    here(tmp_path, model=TINY, steps=2, seeds=1)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    assert torch.get_num_threads() == threads


@contextmanager
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, float64_by_default])
def test_it_trains_alike_in_any_mode_of_the_caller(mode, result, tmp_path):
    with mode():
        before = torch.is_grad_enabled(), torch.get_default_dtype()
        found = here(tmp_path, model=TINY, norms=["layernorm"])
        assert (torch.is_grad_enabled(), torch.get_default_dtype()) == before
    (plain,) = (row for row in result.rows if row.variant == "layernorm")
    assert found.rows[0].measured == plain.measured


class Watched(Dataset):
    """Notes which samples are asked for."""

    def __init__(self):
        self.inner, self.seen = numbered(), []

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, at):
        self.seen.append(at)
        return self.inner[at]


def test_samples_held_out_are_never_trained_on(tmp_path):
    trained, held = set(), set()

    class Telling(Net):
        def forward(self, x):
            (trained if self.training else held).update((x[:, 0] * 60).round().int().tolist())
            return super().forward(x)

    here(tmp_path, model=lambda norm: Telling(norm), data=DataLoader(Watched(), 8, shuffle=True), steps=20)
    assert trained
    assert held
    assert not trained & held
    assert trained | held == set(range(60))


def test_held_out_data_may_be_handed_in(tmp_path):
    val = TensorDataset(torch.rand(20, 4), torch.arange(20) % 2)
    accuracy = {"metric": "accuracy"}
    result = here(tmp_path, model=Net, data=DataLoader(numbered(), 8), val=DataLoader(val, 10), **accuracy)
    assert {row.measure.name for row in result.rows} == {"accuracy"}


class Stream(IterableDataset):
    def __iter__(self):
        return ((torch.rand(4), n % 2) for n in range(40))


def test_two_streams_of_one_name_are_distinguished_and_gone_on_with(tmp_path):
    """They have no print, since they are others each time."""
    for _ in range(2):
        result = here(tmp_path, model=Net, data=DataLoader(Stream(), 8), val=DataLoader(Stream(), 8))
    assert [row.seeds for row in result.rows] == [2, 2]


def test_a_measure_of_a_function(tmp_path):
    def negative(model, batches):
        return -1.0

    result = here(tmp_path, model=Net, data=DataLoader(numbered(), 8), metric=negative, metric_direction="higher")
    assert result.rows[0].measure.name == "negative"
    assert result.rows[0].measured.mean == -1.0


def test_numbers_of_numpy_are_numbers():
    of_numpy = {"lr": np.float32(0.25), "steps": np.int64(3), "twin": np.bool_(True), "decay": np.array([0, 0.5])}
    plain = {"lr": [0.25], "steps": 3, "twin": True, "decay": [0.0, 0.5]}
    options = vars(options_of({**of_numpy, "ladder": [np.float16(1), np.int8(4)]}))
    read = {name: options[name] for name in (*plain, "ladder")}
    assert read == {**plain, "ladder": [1.0, 4]}
    for value in read.values():
        assert {type(one) for one in (value if isinstance(value, list) else [value])} <= {int, float, bool}
    assert _call_text({"lr": np.float32(0.25), "steps": np.int64(3)}) == "nk.compare(lr=0.25, steps=3)"


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"seed": 3}, TypeError, "has no argument 'seed'; did you mean 'seeds'"),
        ({"norm": ["dyt"]}, TypeError, "has no argument 'norm'; did you mean 'norms'"),
        ({"model": nn.Linear(2, 2)}, TypeError, r"model must be a function .* lambda: Linear\(\.\.\.\)"),
        ({"model": 3}, TypeError, "model must be a name or a function, not 3"),
        ({"steps": "many"}, TypeError, "steps must be a whole number, not 'many'"),
        ({"steps": 0}, ValueError, "^steps must be at least 1, not 0"),
        ({"margin": True}, TypeError, "margin must be a number, not True"),
        ({"norms": []}, ValueError, r"norms must hold at least one, not \[\]"),
        ({"lr": ()}, ValueError, r"lr must hold at least one, not \(\)"),
        ({"lr": len}, TypeError, "^lr must be a number, not <built-in function len>"),
        ({"lr": np.array(0.1)}, TypeError, r"^lr must be a number, not array\(0.1\)"),
        ({"steps": np.float64(3)}, TypeError, "^steps must be a whole number, not 3.0"),
        ({"twin": 1}, TypeError, "twin must be True or False, not 1"),
        ({"device": "tpu"}, ValueError, "device must be one of 'auto', 'cpu', 'cuda', not 'tpu'"),
        ({"norms": ["rmsnrm"]}, ValueError, "did you mean 'rmsnorm'"),
        ({"baseline": "rmsnorm"}, ValueError, "^baseline 'rmsnorm' is none of the variants: layernorm, dyt"),
        ({"weight_decay": -1.0}, ValueError, "^weight_decay must be at least 0"),
        ({"data": iter([1])}, ValueError, "data 'list_iterator' gives"),
    ],
)
def test_what_is_given_wrong_is_named_and_nothing_is_done(given, error, message, tmp_path):
    with pytest.raises(error, match=message):
        here(tmp_path / "out", **{"model": TINY, **given})
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_sent_to_other_processes_is_trained_on_in_this_one(tmp_path, capfd):
    data = numbered()
    data.lock = threading.Lock()
    nk.compare(**{**SMALL, "model": Net, "data": DataLoader(data, 8), "norms": ["dyt"], "out": tmp_path})
    assert "data cannot be sent to other processes, so runs go on in this one" in capfd.readouterr().err
    assert len(all_numbers(tmp_path)) == 2


def test_a_process_begins_without_the_script():
    main = sys.modules["__main__"]
    with engines.without_the_script():
        assert not hasattr(sys.modules["__main__"], "__file__")
    assert sys.modules["__main__"] is main


SCRIPT = """
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import normkit as nk

WIDTH = 8


class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, WIDTH), norm(WIDTH), nn.Linear(WIDTH, 2))

    def forward(self, x):
        return self.layers(x)


def factory(norm):
    return Net(norm)


print("run as a script")
x = torch.linspace(-1, 1, 200).reshape(50, 4)
loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 10, shuffle=True)
steps, out = int(sys.argv[1]), sys.argv[2]
given = {"norms": ["layernorm", "dyt"], "seeds": 2, "lr": 0.01, "workers": 2}
print(nk.compare(model=factory, data=loader, steps=steps, out=out, **given))
"""


METHOD = """
import torch
from torch import nn

from normkit.catalog import method


@method("{}", over="C")
class {}(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * self.weight / 2
"""


def script(tmp_path, steps, text=SCRIPT):
    """A script of a user's: it has no guard around what it does."""
    (tmp_path / "mine.py").write_text(text)
    return [sys.executable, str(tmp_path / "mine.py"), str(steps), str(tmp_path / "out")]


OWN = SCRIPT.replace("import normkit as nk\n", "import normkit as nk\nimport halves\n" + METHOD.format("own", "Own"))
OWN = OWN.replace('["layernorm", "dyt"]', '["layernorm", "own", "half"]')


def test_a_script_hands_in_what_it_defines_itself_and_goes_on_until_that_changes(tmp_path):
    """A model, data and a norm of its own, and a norm that it imports; a process for each run of the script."""
    (tmp_path / "halves.py").write_text(METHOD.format("half", "Half"))

    def ran(text=OWN):
        done = forked.run(*script(tmp_path, 4, text)[1:], env={**os.environ, "OMP_NUM_THREADS": "1"})
        return done, all_numbers(tmp_path / "out")

    done = subprocess.run(script(tmp_path, 4, OWN), capture_output=True, text=True, timeout=200)
    first = all_numbers(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run as a script") == 1
    assert "3 variants of factory on DataLoader: 4 steps a run" in done.stderr
    assert "layernorm" in done.stdout
    assert "crashed" not in done.stderr
    assert len(first) == 6
    again, numbers = ran()
    assert again.returncode == 0, again.stderr
    assert "6 runs had ended before" in again.stderr
    assert numbers == first
    changed, numbers = ran(OWN.replace("/ 2", "/ 3"))
    assert changed.returncode == 0, changed.stderr
    assert {name for name in first if numbers[name] != first[name]} == {n for n in first if n.startswith("own")}
    wider, _ = ran(OWN.replace("WIDTH = 8", "WIDTH = 12"))
    assert wider.returncode == 1
    assert "is of another comparison (model: " in wider.stderr


def test_a_stop_is_reported_beside_the_results_and_not_among_them(tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("normkit.lab.course.compare", stopped)
    with pytest.raises(KeyboardInterrupt):
        here(tmp_path, model=TINY)
    assert capsys.readouterr() == ("", f"\nstopped; the same call goes on from {tmp_path}\n")


def test_ctrl_c_leaves_a_folder_that_goes_on(tmp_path):
    process = subprocess.Popen(script(tmp_path, 4000), stderr=subprocess.PIPE, text=True, start_new_session=True)
    logs, deadline = tmp_path / "out" / "runs", time.monotonic() + 100
    while not any('"event": "step"' in log.read_text() for log in logs.glob("*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert f"stopped; the same call goes on from {tmp_path / 'out'}" in errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    found = [log.read_text() for log in sorted(logs.glob("*"))]
    assert any('"interrupted"' in text for text in found)
    assert list(Path(tmp_path / "out" / "checkpoints").glob("*.pt"))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([3], "the batch of step [1-9] has NaN or infinite values"),  # the first look is at step 10
        (range(0, 60, 2), "the held-out data have NaN or infinite values"),
    ],
)
def test_data_that_are_not_finite_are_named_and_not_the_norms(tmp_path, rows, words):
    x, y = numbered().tensors
    x[list(rows), 1] = torch.nan
    result = here(tmp_path, model=Net, data=TensorDataset(x, y), steps=400, seeds=1)
    assert re.search(rf"The baseline layernorm diverged in 1 of 1 seed: {words}, so nothing can be", str(result.answer))


class Diverging(Net):
    """Takes a mask beside its input, and gives NaN in training."""

    def forward(self, x):
        return super().forward(x[0]) * (torch.nan if self.training else 1.0)


def test_a_mask_of_minus_infinity_is_no_bad_batch(tmp_path):
    (x, y), mask = numbered(64).tensors, torch.tensor([0.0, -torch.inf]).repeat(8, 1)
    data = [((some, mask), classes) for some, classes in zip(x.split(8), y.split(8), strict=True)]
    result = here(tmp_path, model=Diverging, data=data, steps=4, seeds=1)
    assert "The baseline layernorm diverged in 1 of 1 seed, first at step 1, so nothing can be" in str(result.answer)


@pytest.mark.parametrize(
    "kind, name", [("long", "cross entropy of classes"), ("float", "squared distance to the targets")]
)
def test_the_loss_that_targets_decide_is_printed_and_stands_in_the_page(tmp_path, capsys, kind, name):
    x, y = numbered(64).tensors
    y = y if kind == "long" else y.float()[:, None].repeat(1, 2)
    result = here(tmp_path, model=Net, data=TensorDataset(x, y), steps=2, seeds=1)
    assert f"The loss is {name}." in reading(result.comparison)
    assert re.findall(r"^loss: .*$", capsys.readouterr().err, re.MULTILINE) == [f"loss: {name}"]


def test_classes_as_floats_are_refused_with_what_to_hand_in(tmp_path):
    x, y = numbered(64).tensors
    with pytest.raises(ValueError, match=r"targets of shape .* are whole numbers below 2, .* integers, target.long"):
        here(tmp_path, model=Net, data=TensorDataset(x, y.float()), steps=2, seeds=1)
