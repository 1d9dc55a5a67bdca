"""A setting is a field: what users type, what a folder hands on and what errors say are read from it."""

import dataclasses
import inspect

import pytest

import normkit as nk
from normkit import cli
from normkit.lab import request
from normkit.lab.plan import builtin, settings
from normkit.lab.plan.options import OPTIONS, open_options
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import page


def test_the_command_python_and_the_docstring_have_the_same_options():
    typed = vars(cli.parser().parse_args(["compare"]))
    assert set(OPTIONS) == set(typed) - {"command", "run"}
    assert {name: typed[name] for name in OPTIONS} == vars(open_options())
    arguments = inspect.signature(nk.compare).parameters
    assert set(arguments) == {one.called for one in OPTIONS.values()}
    assert {"norms", "losses", "lr", "until_decided", "out"} <= set(arguments)
    assert all(f"        {name}: " in nk.compare.__doc__ for name in arguments)
    assert "--" not in nk.compare.__doc__


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: field.name)
def test_every_setting_says_what_it_decides(field):
    one = settings.FIELDS[field.name]
    assert one.default == field.default
    assert one.role in (settings.RUN, settings.SCHEDULE, settings.JUDGEMENT, settings.MACHINE)
    assert (one.role == settings.MACHINE) <= (one.resuming == settings.ANY)
    assert bool(one.group) == bool(one.help)


def test_a_recipe_holds_the_settings_that_decide_a_runs_numbers():
    """The names are those of folders that were written before; one more would make their runs others."""
    assert set(settings.deciding(vars(Settings()))) == {
        *("model", "data", "train", "val", "batch", "length", "metric", "allow_leak", "federated", "clients", "split"),
        *("local_steps", "warmup", "clip", "weight_decay", "device", "precision", "threads", "sharded"),
        *("log_every", "eval_every", "eval_batches", "probe_every"),
    }


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["--local-steps", "0"], {"local_steps": 0}, "local{}steps must be at least 1, not 0"),
        (["--warmup", "1"], {"warmup": 1.0}, "warmup must be a share of the run, from 0 to below 1, not 1.0"),
        (["--lr", "0.1", "-1"], {"lr": [0.1, -1.0]}, "lr must be above 0, not -1.0"),
        (["--seconds", "0"], {"seconds": 0.0}, "seconds must be above 0, not 0.0"),
    ],
)
def test_a_bound_is_named_as_the_user_typed_it(words, given, said, tmp_path, capsys):
    assert cli.main(["compare", *words, "--out", str(tmp_path)]) == 2
    assert f"--{said.format('-')}" in capsys.readouterr().err
    with pytest.raises(ValueError) as refused:
        nk.compare(**given, out=tmp_path)
    assert str(refused.value) == said.format("_")


OUTSIDE = {
    **dict.fromkeys(("steps", "batch", "length", "seeds", "trials", "local_steps", "workers", "threads"), 0),
    **dict.fromkeys(("margin", "clip", "weight_decay"), -1e-9),
    **{"clients": 1, "warmup": 1.0, "seconds": 0.0, "lr": [0.0], "decay": [-0.1], "ladder": [0.0], "bits": [1]},
}


def test_every_number_has_a_bound_which_a_variants_own_has_as_well():
    bounded = {name for name, one in settings.OWN.items() if one.bound.wanted}
    assert bounded == set(OUTSIDE) == {name for name, one in settings.OWN.items() if one.kind in (int, float)}
    for name, value in OUTSIDE.items():
        with pytest.raises(ValueError, match=f"^--{name.replace('_', '-')} must be "):
            settings.OWN[name].require(value)
    for name, value in {"steps": 0, "lr": 0.0, "warmup": 1.0, "batch": 0}.items():
        with pytest.raises(ValueError, match=f"^variant 'a': {name} must be .*, not {value}"):
            Variant("a", **{name: value})


@pytest.mark.parametrize(
    ("model", "data", "batch", "of_clients"),
    [
        ("decoder", "python-docs", 8, 8),
        ("resnet", "digits", 64, 32),
        ("spdnet", "spd", 64, 32),
        ("flow", "points.csv", 256, 256),
    ],
)
def test_a_batch_that_is_left_open_is_that_of_what_the_data_are(model, data, batch, of_clients):
    assert request.usual_batch(model, data) == batch
    assert request.usual_batch(model, data, federated=True) == of_clients


def test_a_slot_is_named_as_the_user_typed_it(tmp_path, capsys):
    assert cli.main(["compare", "--norm", "fedbn", "--out", str(tmp_path)]) == 2
    assert "--norm fedbn is of many owners of data: give --federated" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"^norms fedbn is of many owners of data: give federated$"):
        nk.compare(norms=["fedbn"], out=tmp_path)


def test_the_report_lists_settings_by_what_they_decide():
    lists = dict(page.by_role({**vars(Settings()), "baseline": "dyt", "of a later version": 1}))
    assert ("steps", "160") in lists["Settings of the plan"]
    assert ("baseline", "dyt") in lists["Settings of the judgement"]
    assert ("of a later version", "1") in lists["Settings of the judgement"]
    assert ("model", "decoder:depth=2") in lists["Settings of a run"]


@pytest.mark.parametrize("name", builtin.MODELS)
def test_a_built_in_model_is_a_row_that_is_built_from_what_it_says(name):
    row = builtin.MODELS[name]
    assert row == builtin.row(f"{name}:depth=1")
    assert not builtin.is_own(name)
    if row.data:
        assert set(row.norms) - {"original"} <= set(nk.methods())
        assert row.place.causal == (name == "decoder")
