"""Adding to a comparison: what is there is not trained again, and all ends as one comparison run whole."""

import importlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from helpers import WORDS, all_numbers, command, plan_of, train_here
from torch.utils.data import DataLoader, TensorDataset

import normkit as nk
from normkit import cli
from normkit.lab.files import Folder
from normkit.lab.plan import growth
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant, cross
from normkit.lab.report import page as report
from normkit.lab.training import loop, runs

HOW = ["--steps", "6", "--seeds", "3", "--trials", "2"]


@pytest.fixture(autouse=True)
def trained(monkeypatch):
    """What is trained, in this process, in order."""
    return train_here(monkeypatch)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("small") / "out"
    with pytest.MonkeyPatch.context() as patch:
        train_here(patch)
        command(root, *HOW, "--norm", "layernorm", "dyt")
    return root


@pytest.fixture
def there(small, tmp_path):
    shutil.copytree(small, tmp_path / "out")
    return tmp_path / "out"


def told(root):
    return {row.variant: (row.measured, row.finding, row.place, row.lr) for row in report.summary(root)}


def finals(names):
    return {name for name in names if not name.endswith("--seed0")}


def test_another_norm_is_trained_alone_and_all_is_as_if_run_whole(there, trained, tmp_path, capsys):
    command(there, "--norm", "rmsnorm")
    assert {name.split("--")[0] for name in trained} == {"rmsnorm"}
    assert len(trained) == 2 + 3
    assert "added: rmsnorm" in capsys.readouterr().err
    command(tmp_path / "whole", *HOW, "--norm", "layernorm", "dyt", "rmsnorm")
    assert all_numbers(there) == all_numbers(tmp_path / "whole")
    assert told(there) == told(tmp_path / "whole")
    assert [v["name"] for v in plan_of(there)["variants"]] == ["layernorm", "dyt", "rmsnorm"]


def test_more_seeds_train_the_further_ones_alone(there, trained, tmp_path):
    command(there, "--seeds", "5")
    assert {name.split("--")[2] for name in trained} == {"seed4", "seed5"}
    assert len(trained) == 2 * 2
    command(tmp_path / "whole", *HOW, "--seeds", "5", "--norm", "layernorm", "dyt")
    assert all_numbers(there) == all_numbers(tmp_path / "whole")
    assert told(there) == told(tmp_path / "whole")
    said = [line for line in report.reading(report.load(there)) if "Seeds were added" in line]
    assert "when the numbers of 3 were there" in said[0]


def test_fewer_seeds_are_never_planned(there, trained):
    command(there, "--seeds", "1", "--norm", "layernorm")
    assert trained == []
    assert plan_of(there)["settings"]["seeds"] == 3


def test_more_steps_for_all_are_trained_anew_which_is_said(there, trained, tmp_path, capsys):
    before = all_numbers(there)
    command(there, "--steps", "8")
    assert "steps: 8 instead of 6; the learning rate falls along the whole run" in capsys.readouterr().err
    assert len(trained) == len(before) == 2 * (2 + 3)
    command(tmp_path / "whole", *HOW, "--steps", "8", "--norm", "layernorm", "dyt")
    assert all_numbers(there) == all_numbers(tmp_path / "whole")
    assert told(there) == told(tmp_path / "whole")
    assert len(list((there / "runs").glob("*.jsonl.shorter"))) == len(before)


def test_another_baseline_trains_nothing_and_times_again(there, trained, tmp_path):
    speeds = json.loads((there / "speed.json").read_text())
    command(there, "--baseline", "dyt")
    assert trained == []
    assert json.loads((there / "speed.json").read_text())["baseline"] == "dyt" != speeds["baseline"]
    rows = {row.variant: row for row in report.summary(there)}
    assert rows["dyt"].is_baseline
    assert rows["layernorm"].finding is not None
    assert rows["dyt"].speed is None


def test_nothing_asked_for_is_what_is_there(there, trained):
    before = plan_of(there)
    assert cli.main(["compare", "--out", str(there)]) == 0
    assert trained == []
    assert plan_of(there) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--warmup", "0.1"], "warmup: 0.2 there, 0.1 here"),
        (["--length", "9"], "length: 8 there, 9 here"),
        (["--batch", "3", "--norm", "rmsnorm"], "batch: 2 there, 3 here"),
        (["--steps", "5"], "steps: 6 there, 5 here"),
        (["--trials", "3"], "trials: 2 there, 3 here"),
        (["--lr", "0.1"], "lrs: None there, [0.1] here"),
        (["--model", "decoder:dim=16"], "model: 'decoder:dim=8,depth=1,heads=1' there, 'decoder:dim=16' here"),
        (["--metric", "accuracy"], "has no accuracy"),
        (["--seconds", "1"], "steps: 6 there, None here"),
    ],
)
def test_what_could_not_be_compared_is_refused_with_what_differs(there, trained, words, said, capsys):
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    assert cli.main([*WORDS, *words, "--out", str(there)]) == 2
    assert said in capsys.readouterr().err
    assert trained == []
    assert before == {path: path.read_bytes() for path in there.rglob("*") if path.is_file() and path in before}


def test_a_kill_before_the_plan_is_replaced_leaves_all_as_it_was(there, trained, monkeypatch):
    before = plan_of(there)
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        cli.main([*WORDS, "--norm", "rmsnorm", "--out", str(there)])
    assert plan_of(there) == before
    assert trained == []


@pytest.mark.parametrize("words", [["--norm", "rmsnorm"], ["--steps", "8"], ["--seeds", "4"]])
def test_a_kill_after_the_plan_is_replaced_goes_on_with_the_same_command(there, trained, words, monkeypatch, tmp_path):
    """And the report between leaves out runs that are shorter than planned."""
    with monkeypatch.context() as patch:
        patch.setattr(runs, "set_shorter_aside", lambda plan, folder: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            cli.main([*WORDS, *words, "--out", str(there)])
    comparison = report.load(there)
    shorter = [note for note in comparison.notes if "is of a shorter run than is planned" in note]
    assert len(shorter) == (10 if words[0] == "--steps" else 0)
    assert len(comparison.runs) + len(shorter) == 10
    command(there, *words)
    added = words[1:] if words[0] == "--norm" else words
    command(tmp_path / "whole", *HOW, "--norm", "layernorm", "dyt", *added)
    assert all_numbers(there) == all_numbers(tmp_path / "whole")


def test_a_stop_while_it_grows_goes_on_with_the_same_command(there, trained, monkeypatch, tmp_path):
    train = loop.train
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", lambda run, *rest: stop_at(run, "rmsnorm--lr0.003--seed0", train, *rest))
        assert cli.main([*WORDS, "--norm", "rmsnorm", "--out", str(there)]) == 130
    command(there, "--norm", "rmsnorm")
    command(tmp_path / "whole", *HOW, "--norm", "layernorm", "dyt", "rmsnorm")
    assert all_numbers(there) == all_numbers(tmp_path / "whole")


def stop_at(run, name, train, *rest):
    if run.name == name:
        raise KeyboardInterrupt
    return train(run, *rest)


def test_names_of_what_is_added_are_made_of_what_varies():
    first = cross(placement=["pre-norm", "post-norm"])
    again = growth.join_variants(first, cross(norm=["dyt"], placement=["pre-norm", "post-norm"]), crossed=True)
    assert [v.name for v in again] == ["pre-norm", "post-norm", "pre-norm+dyt", "post-norm+dyt"]
    assert growth.join_variants(first, cross(norm=["layernorm"]), crossed=True) == first
    with pytest.raises(ValueError, match="another variant 'a': norm 'dyt' there, 'rmsnorm' here"):
        growth.join_variants([Variant("a", norm="dyt")], [Variant("a", norm="rmsnorm")], crossed=False)


def test_variants_that_are_there_cannot_be_left_out_or_change():
    old = Plan(Settings(), (Variant("a"), Variant("b", norm="dyt")), "a").described()
    new = Plan(Settings(), (Variant("a", norm="rmsnorm"),), "a").described()
    assert growth.obstacles(old, new) == [
        "variant 'a': norm 'layernorm' there, 'rmsnorm' here",
        "variant 'b': there, but not here",
    ]


def test_a_control_keeps_its_baseline(there, capsys):
    command(there, "--twin", "--seeds", "3")
    assert cli.main([*WORDS, "--baseline", "dyt", "--out", str(there)]) == 2
    assert "the control that is there is of layernorm" in capsys.readouterr().err


def test_a_folder_of_before_grows(tmp_path):
    """Its plan lacks fields that there are by now."""
    old = Plan(Settings(), (Variant("a"),), "a").described()
    del old["settings"]["margin"], old["variants"][0]["loss"]
    new = Plan(Settings(seeds=7), (Variant("a"), Variant("b", norm="dyt")), "a").described()
    assert growth.obstacles(old, new) == []
    assert growth.additions(old, new) == ["added: b", "seeds: 7 instead of 5"]
    assert Folder(tmp_path).plan.name == "plan.json"


EVIL = "import pathlib\npathlib.Path('{mark}').touch()\nmake = loader = score = train = None\n"


@pytest.mark.parametrize("name", ["model", "data", "val", "metric", "train"])
def test_code_that_a_plan_names_is_imported_only_where_the_command_names_it_or_trusts_it(
    name, small, tmp_path, monkeypatch, capsys
):
    """A folder from somebody else, with a module beside the plan."""
    shutil.copytree(small, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    monkeypatch.syspath_prepend(str(tmp_path / "out"))
    plan, mark, source = plan_of(Path()), tmp_path / "imported", f"evil_{name}:make"
    Path(f"evil_{name}.py").write_text(EVIL.format(mark=mark))
    plan["settings"][name] = source
    plan.pop("seal", None)  # as whoever means harm would
    Path("plan.json").write_text(json.dumps(plan))
    assert cli.main(["compare", "--out", "."]) == 2
    assert f"plan.json names code to import, {name} {source!r}" in capsys.readouterr().err
    with pytest.raises(ValueError, match=f"give {name} {source} here as well, or trust$"):
        nk.compare(out=".", engine="here")
    assert cli.main(["report", "."]) == 0
    assert not mark.exists()
    cli.main(["compare", "--out", ".", "--trust"])
    assert "names code" not in capsys.readouterr().err
    assert mark.exists() or name in ("val", "train")  # which do not suit the rest of this plan


def test_a_plan_whose_code_the_command_names_goes_on(small, tmp_path, capsys):
    shutil.copytree(small, tmp_path / "out")
    plan = plan_of(tmp_path / "out")
    plan["settings"]["metric"] = "test_growth:score"
    (tmp_path / "out" / "plan.json").write_text(json.dumps(plan))
    cli.main([*WORDS, "--out", str(tmp_path / "out"), "--metric", "test_growth:score"])
    assert "names code" not in capsys.readouterr().err


def score(model, batches):
    return 1.0


score.higher_is_better = True


LOOP = "def train(build, seed, log):\n    build(4)\n    return {measure}\n"


@pytest.mark.parametrize(
    ("name", "before", "after", "words"),
    [
        ("loop_of_mine.py", LOOP.format(measure="1.0"), LOOP.format(measure="2.25"), ["--train", "loop_of_mine:train"]),
        (
            "words.txt",
            "one two three " * 900,
            "one two four " * 900,
            [*WORDS[1:], "--steps", "2", "--data", "words.txt"],
        ),
    ],
)
def test_what_a_name_stands_for_may_not_change(name, before, after, words, tmp_path, monkeypatch, capsys):
    """Runs of the old code beside runs of the new would be compared as if they were of one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(name).write_text(before)
    asked = ["compare", *words, "--norm", "layernorm", "dyt", "--seeds", "1", "--trials", "1", "--out", "out"]
    assert cli.main(asked) == cli.main(asked) == 0
    Path(name).write_text(after)
    sys.modules.pop("loop_of_mine", None)
    importlib.invalidate_caches()
    capsys.readouterr()
    assert cli.main(asked) == 2
    assert f"{words[-1]} is not what it was); " in capsys.readouterr().err
    assert cli.main([*asked, "--fresh"]) == 0


class Drawn(torch.nn.Module):
    """A model whose width comes from where nobody looks."""

    def __init__(self, norm):
        super().__init__()
        width = int(os.environ["WIDTH"])
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, width), norm(width), torch.nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)


X = torch.linspace(-1, 1, 400).view(100, 4)
LABELS = torch.arange(100) % 3
ELSEWHERE = LABELS.clone().index_fill_(0, torch.tensor([n for n in range(100) if n not in (0, 50, 99)]), 0)


@pytest.mark.parametrize(
    ("labels", "width", "more", "words"),
    [
        (LABELS, "8", {"seeds": 3}, None),
        (ELSEWHERE, "8", {"seeds": 3}, r"\(what is held out is not what it was\); name another folder with out"),
        (LABELS, "16", {}, r"\(variant 'layernorm': 83 parameters there, 163 here\); name another folder with out"),
        (LABELS, "8", {"shuffle": False}, "how DataLoader draws and joins samples is not what it was"),
        (LABELS, "8", {"drop_last": True}, "how DataLoader draws and joins samples is not what it was"),
    ],
)
def test_what_has_changed_where_no_print_looks_is_seen_by_what_runs_are_made_of(
    labels, width, more, words, tmp_path, monkeypatch
):
    def compare(labels, width, shuffle=True, drop_last=False, **more):
        monkeypatch.setenv("WIDTH", width)
        data = DataLoader(TensorDataset(X, labels), 10, shuffle=shuffle, drop_last=drop_last)
        asked = {"norms": ["layernorm"], "steps": 2, "seeds": 2, "lr": 0.01, "engine": "here", "out": tmp_path}
        return nk.compare(model=Drawn, data=data, **{**asked, **more})

    compare(LABELS, "8")
    before = plan_of(tmp_path)
    if words is None:
        assert compare(labels, width, **more).rows[0].seeds == 3
        return
    with pytest.raises(ValueError, match=words):
        compare(labels, width, **more)
    assert plan_of(tmp_path) == before


def test_a_folder_whose_prints_are_of_before_goes_on_and_has_those_of_now(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("WIDTH", "8")
    asked = {"model": Drawn, "norms": ["layernorm"], "steps": 2, "seeds": 2, "lr": 0.01, "batch": 10, "out": tmp_path}
    nk.compare(**asked, data=TensorDataset(X, LABELS))
    plan = plan_of(tmp_path)
    before = {**plan["settings"], "data": "given:TensorDataset#1f3a", "prints": ["test_growth:Drawn#3f5e"]}
    del plan["seal"]
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "settings": before}))
    trained.clear()
    nk.compare(**asked, data=TensorDataset(X, LABELS))
    assert trained == []
    assert plan_of(tmp_path)["settings"] == plan["settings"]
    with pytest.raises(ValueError, match="what is held out is not what it was"):
        nk.compare(**asked, data=TensorDataset(X, ELSEWHERE))
