"""A ladder as it is typed, trained, gone on with and reported: rungs are comparisons of their own in one folder."""

import shutil

import pytest
import torch
from helpers import WORDS, all_numbers, command, plan_of, train_here

import normkit as nk
from normkit import cli
from normkit.lab import logs
from normkit.lab.plan import data, growth, ladder, tasks
from normkit.lab.plan.plan import Plan, Run, read_name, rung_of
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import conclusion, figures
from normkit.lab.report import page as report
from normkit.lab.result import Result
from normkit.lab.training import runs

HOW = ["--seeds", "3", "--trials", "2", "--norm", "layernorm", "dyt"]
STEPS = ["--steps", "4", "--ladder", "1,2"]


@pytest.fixture(autouse=True)
def trained(monkeypatch):
    """What is trained, in this process, in order."""
    return train_here(monkeypatch)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("small") / "out"
    with pytest.MonkeyPatch.context() as patch:
        train_here(patch)
        command(root, *HOW, *STEPS)
    return root


@pytest.fixture
def there(small, tmp_path):
    shutil.copytree(small, tmp_path / "out")
    return tmp_path / "out"


def of_rung(root, rung):
    """The numbers of a rung's runs by the names that they have without a ladder, without what says the rung."""
    mark, kept = f"--x{rung}--", {}
    for name, events in all_numbers(root).items():
        if mark in name:
            start = {**events[0], "recipe": {k: v for k, v in events[0]["recipe"].items() if k != "rung"}}
            kept[name.replace(mark, "--")] = [start, *events[1:]]
    return kept


def plain(root):
    return {name: events for name, events in all_numbers(root).items() if "--x" not in name}


def test_a_rung_is_the_comparison_of_its_length_to_the_last_digit(small, tmp_path):
    for steps, rung in (("4", plain(small)), ("8", of_rung(small, 2))):
        alone = tmp_path / steps
        command(alone, *HOW, "--steps", steps)
        assert all_numbers(alone) == rung


def test_a_comparison_that_is_there_gains_a_ladder_and_the_ladder_rungs(tmp_path, trained, capsys):
    root, whole = tmp_path / "out", tmp_path / "whole"
    command(root, *HOW, "--steps", "4")
    before = len(trained)
    command(root, "--ladder", "1", "2")
    assert "rungs of steps: 1,2 instead of 1" in capsys.readouterr().err
    assert all("--x2--" in name for name in trained[before:])
    assert len(trained) == 2 * before
    command(root, "--ladder", "1,2,4")
    assert all("--x4--" in name for name in trained[2 * before :])
    assert [one["rungs"] for one in plan_of(root)["added"]] == [[1.0], [1.0, 2.0]]
    count = len(trained)
    command(root)
    assert len(trained) == count
    command(whole, *HOW, "--steps", "4", "--ladder", "1,2,4")
    assert all_numbers(root) == all_numbers(whole)
    assert [one.rung for one in Result(root).trends["dyt"].forecasts] == [4.0]


def test_nothing_is_trained_twice_and_fresh_begins_again(there, trained):
    command(there)
    assert trained == []
    path = next((there / "runs").glob("dyt--x2--*--seed3.jsonl"))
    path.unlink()
    command(there)
    assert trained == [path.stem]
    command(there, *HOW, *STEPS, "--fresh")
    assert len(trained) == 1 + 2 * 2 * (2 + 3)


def test_more_seeds_and_norms_are_trained_on_every_rung(there, trained):
    command(there, "--seeds", "4", "--norm", "rmsnorm")
    assert len(trained) == 2 * (2 + 4 + 2)
    assert sum("--x2--" in name for name in trained) == len(trained) // 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ladder", "1,4"], "ladder: [1.0, 2.0] there, [1.0, 4.0] here"),
        (["--ladder", "1,2,4", "--ladder-of", "depth"], "ladder_of: 'steps' there, 'depth' here"),
    ],
)
def test_rungs_that_are_there_stay(words, message, there, capsys):
    assert cli.main([*WORDS, *words, "--out", str(there)]) == 2
    assert message in capsys.readouterr().err


def test_the_report_ranks_on_the_highest_rung_and_shows_the_ladder(there, capsys):
    assert cli.main(["report", str(there)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    comparison = report.load(there)
    assert (comparison.rung, list(comparison.rungs), comparison.settings["steps"]) == (2.0, [1.0, 2.0], 8)
    assert "Gap to layernorm along the ladder" in shown
    assert "From 4 steps to 8 steps, the gap to layernorm: " in shown
    page = (there / "index.html").read_text()
    assert page.count("Gap to layernorm along the ladder") >= 2
    assert "On a ladder of 4 steps and 8 steps the ranking" in page
    assert "predicted: 16 steps" in page
    trend = conclusion.ladder.trends_of(comparison)["dyt"]
    dyt, base = ([run.final() for run in comparison.rungs[2.0].final_runs(name)] for name in ("dyt", "layernorm"))
    gap = (sum(dyt) - sum(base)) / sum(base)
    assert trend.gaps[2.0].mean == pytest.approx(gap)
    assert report.summary(there)[-1].measured.count == 3
    (picture,) = [one for one in figures.pictures(comparison) if one["title"].endswith("along the ladder")]
    axis = picture["figure"]["layout"]["xaxis"]
    assert axis["ticktext"] == ["4 steps", "8 steps", "16 steps", "32 steps"]
    measured = [trace for trace in picture["figure"]["data"] if trace["x"] == [1.0, 2.0]]
    assert measured[0]["y"] == pytest.approx([100 * trend.gaps[rung].mean for rung in (1.0, 2.0)])


def test_a_plain_comparison_has_neither_table_nor_picture_of_a_ladder(tmp_path):
    command(tmp_path, *HOW, "--steps", "4")
    assert not [one for one in figures.pictures(report.load(tmp_path)) if "ladder" in one["title"]]
    page = (tmp_path / "index.html").read_text()
    assert "along the ladder" not in page
    assert all("rung" not in logs.read(path).start["recipe"] for path in (tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("of", "model", "rung", "size"),
    [
        ("width", "decoder:depth=2", 2, "decoder:depth=2,dim=128"),
        ("width", "resnet", 0.5, "resnet:dim=8"),
        ("width", "flow:depth=3", 2, "flow:depth=3,hidden=128"),
        ("depth", "vit:dim=24", 3, "vit:dim=24,depth=12"),
    ],
)
def test_a_width_and_a_depth_are_those_of_the_built_in_model(of, model, rung, size):
    settings = Settings(model=model, ladder=(1, rung) if rung > 1 else (rung, 1), ladder_of=of)
    assert ladder.at(settings, rung).model == size
    assert ladder.at(settings, 1).model == model
    assert ladder.at(settings, rung).ladder is None


def test_steps_of_a_rung_are_logged_as_those_of_so_long_a_run(tmp_path):
    settings = ladder.at(Settings(ladder=(1, 4)), 4)
    assert (settings.steps, settings.log_every, settings.eval_every, settings.probe_every) == (640, 16, 80, 80)
    seconds = ladder.at(Settings(steps=None, seconds=3.0, ladder=(1, 4)), 4)
    assert (seconds.seconds, seconds.steps) == (12.0, None)


def test_steps_that_a_variant_has_of_its_own_grow_as_well():
    plan = Plan(Settings(ladder=(1, 2), lrs=(0.1,)), (Variant("a"), Variant("b", steps=50)), "a")
    ready = {(run.variant.name, run.rung): run.steps for run in runs.ready(plan, {})}
    assert ready == {("a", 1): 160, ("b", 1): 50, ("a", 2): 320, ("b", 2): 100}
    assert runs.steps_in_all(plan, {}) == 2 * 5 * (1 + 2)
    wide = Plan(Settings(ladder=(1, 2), ladder_of="depth", lrs=(0.1,)), (Variant("b", steps=50),), "b")
    assert {run.steps for run in runs.ready(wide, {})} == {50}


def test_shares_of_data_are_parts_of_each_other_with_the_same_held_out():
    whole = tasks.load(Settings(model="resnet", data="digits")).data
    half, quarter = (tasks.portion(whole, share) for share in (0.5, 0.25))
    assert (len(half.labels), len(quarter.labels)) == (round(len(whole.labels) / 2), round(len(whole.labels) / 4))
    assert all(torch.equal(*both) for both in zip(half.held_out, whole.held_out, strict=True))
    rows = {image.numpy().tobytes() for image in half.images}
    assert all(image.numpy().tobytes() in rows for image in quarter.images)
    shares = torch.bincount(quarter.labels) / torch.bincount(whole.labels)
    assert shares.tolist() == pytest.approx([0.25] * 10, abs=0.01)
    tokens = data.Tokens(torch.arange(1000), 2, 8, 2, "it")
    assert tasks.portion(tokens, 0.5).tokens.tolist() == list(range(450))


def test_a_ladder_of_data_is_one_of_shares_the_last_of_which_are_all(tmp_path):
    command(tmp_path, *HOW, "--steps", "4", "--ladder", "1,4", "--ladder-of", "data")
    names = {path.stem.split("--")[1] for path in (tmp_path / "runs").iterdir()}
    assert {name for name in names if name.startswith("x")} == {"x0.25"}
    quarter, whole = (next((tmp_path / "runs").glob(f"dyt--{name}*seed1*")) for name in ("x0.25", "lr"))
    assert logs.read(quarter).start["recipe"]["settings"]["share"] == 0.25
    assert "share" not in logs.read(whole).start["recipe"]["settings"]
    line = conclusion.headline(report.load(tmp_path), report.summary(tmp_path))
    assert "From 25% of the data to 100% of the data" in line
    command(tmp_path, "--ladder", "1,2,4")
    assert sorted(report.load(tmp_path).rungs) == [0.25, 0.5, 1.0]


def test_a_run_is_named_by_its_rung_and_known_by_its_name():
    run = Run(Variant("dyt:alpha=1", norm="dyt"), 0.003, 2, "final", 8, None, 0.25)
    assert run.name == "dyt_alpha=1--x0.25--lr0.003--seed2"
    known = {"variant": "dyt:alpha=1", "lr": 0.003, "seed": 2, "phase": "final", "rung": 0.25}
    assert read_name(run.name, ["dyt:alpha=1"]) == known
    assert read_name("other--x2--lr0.003--seed2", ["dyt:alpha=1"]) == {}
    assert rung_of({"recipe": run.recipe(Settings())}) == 0.25
    assert rung_of({"recipe": Run(run.variant, 0.1, 1, "final").recipe(Settings())}) == rung_of({}) == 1.0
    assert "rung" not in Run(run.variant, 0.1, 1, "final").recipe(Settings())


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (["1"], {"ladder": [1]}, "{ladder} must have at least 2 rungs, such as 1,2,4, not 1 alone"),
        (["1,4,2"], {"ladder": [1, 4, 2]}, "{ladder} must grow from rung to rung, but 2 follows 4"),
        (["1,1"], {"ladder": [1, 1]}, "{ladder} must grow from rung to rung, but 1 follows 1"),
        (["0,1"], {"ladder": [0.0, 1]}, "{ladder} must be above 0, not 0.0"),
        (
            ["1,1.3"],
            {"ladder": (1, 1.3)},
            "{ladder}: a rung makes 4 steps 5.2, which is no whole number of at least 1",
        ),
        (
            ["1,2", "--ladder-of", "width", "--model", "timm:resnet18"],
            {"ladder": (1, 2), "ladder_of": "width", "model": "timm:resnet18"},
            "{of} width: only built-in models have one that can be set, not 'timm:resnet18'; or take {of} steps",
        ),
        (
            ["1,2", "--ladder-of", "width", "--model", "spdnet"],
            {"ladder": (1, 2), "ladder_of": "width", "model": "spdnet"},
            "{of} width: give 'spdnet' a dim of its own, such as spdnet:dim=4; or take {of} steps",
        ),
        (
            ["1,2", "--ladder-of", "data", "--federated"],
            {"ladder": (1, 2), "ladder_of": "data", "federated": True},
            "{of} data and {federated} exclude each other",
        ),
    ],
)
def test_a_ladder_that_cannot_be_climbed_is_refused_as_it_was_typed(words, given, message, tmp_path, capsys):
    assert cli.main(["compare", "--steps", "4", "--out", str(tmp_path), "--ladder", *words]) == 2
    assert message.format(ladder="--ladder", of="--ladder-of", federated="--federated") in capsys.readouterr().err
    with pytest.raises(ValueError) as refused:
        nk.compare(steps=4, out=tmp_path, **given)
    assert str(refused.value) == message.format(ladder="ladder", of="ladder_of", federated="federated")


def test_what_grows_without_a_ladder_and_a_ladder_on_a_loop_of_ones_own_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^ladder_of depth is of a ladder: give ladder as well, such as 1,2,4$"):
        nk.compare(ladder_of="depth", out=tmp_path)
    with pytest.raises(ValueError, match="a training loop of your own makes its model and data itself"):
        nk.compare(train=lambda build, seed, log: 1.0, ladder=(1, 2), ladder_of="width", out=tmp_path)
    with pytest.raises(ValueError, match=r"^ladder multiplies steps or seconds: give one of them$"):
        nk.compare(train=lambda build, seed, log: 1.0, ladder=(1, 2), out=tmp_path)


def test_a_stream_has_no_parts_to_take(tmp_path):
    def batches():
        chance = torch.Generator().manual_seed(0)
        while True:
            yield torch.randint(0, 9, (2, 9), generator=chance)

    with pytest.raises(ValueError, match="ladder_of data takes a part of the samples"):
        nk.compare(data=batches, val=lambda: [torch.zeros(2, 9).long()], ladder=(1, 2), ladder_of="data", out=tmp_path)


def test_the_ladder_a_plan_had_before_there_were_ladders_is_its_only_rung():
    old = {"settings": {"model": "decoder", "data": "python-docs", "seeds": 3}, "variants": []}
    new = {"settings": {**vars(Settings()), "model": "decoder", "seeds": 3, "ladder": [1.0, 2.0]}, "variants": []}
    assert growth.obstacles({**old, "baseline": "a"}, {**new, "baseline": "a"}) == []
    new["settings"]["ladder"] = [2.0, 4.0]
    assert growth.obstacles(old, new)[0] == "ladder: None there, [2.0, 4.0] here"


def test_a_torn_log_of_a_rung_is_known_by_its_name(there):
    path = next((there / "runs").glob("dyt--x2--*--seed3.jsonl"))
    lines = path.read_text().split("\n")
    path.write_text("\n".join(line for line in lines if '"start"' not in line))
    assert not logs.read(path).start
    comparison = report.load(there)
    assert [run.seed for run in comparison.rungs[2.0].final_runs("dyt")] == [1, 2, 3]
    assert [run.seed for run in comparison.rungs[1.0].final_runs("dyt")] == [1, 2, 3]
