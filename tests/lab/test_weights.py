"""Reparametrizations crossed with any model."""

import itertools
import math

import pytest
import torch
from helpers import TINY, losses, numbers, run, settings, trained
from torch import nn
from torch.nn.utils import parametrize

from normkit.lab.files import Folder
from normkit.lab.plan import tasks
from normkit.lab.plan.variants import Variant, cross
from normkit.lab.training.loop import train


def test_what_takes_the_weight_over_starts_where_the_plain_model_does(tmp_path):
    plain, normed = (trained(tmp_path / name, run(name=name, weight=name, steps=4)) for name in ("none", "weight-norm"))
    torch.testing.assert_close(losses(normed, "eval")[0], losses(plain, "eval")[0])
    assert losses(normed) != losses(plain)
    assert "weight" not in plain[0]["layers"]
    layers = int(normed[0]["layers"]["weight"].split()[1])
    model = tasks.load(settings(model=TINY)).build(Variant("a", norm="rmsnorm"), 1)
    assert layers == sum(isinstance(m, nn.Linear) for m in model.modules())


@pytest.mark.parametrize("weight", ["spectral-norm", "sigma-reparam"])
def test_a_run_with_reparametrized_weights_that_is_stopped_ends_with_the_same_numbers(weight, tmp_path):
    one = run(name=weight, weight=weight, steps=6)
    whole = trained(tmp_path / "whole", one)
    asked = itertools.count(1)
    trained(tmp_path / "cut", one, stop=lambda: next(asked) == 4)
    train(one, settings(), str(tmp_path / "cut"))
    assert numbers(Folder(tmp_path / "cut").log(one.name)) == whole
    assert math.isfinite(whole[-1]["final_loss"])


def test_any_model_takes_them():
    task = tasks.load(settings(model="timm:resnet10t", data="digits"))
    model = task.build(Variant("a", norm="original", weight="weight-standardization"), 1)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert convolutions
    assert any(parametrize.is_parametrized(m) for m in convolutions)
    assert task.loss(model, task.data.train(1, 1)).isfinite()


def test_they_are_crossed_with_norms():
    found = cross(norm=["rmsnorm", "dyt"], weight=["none", "spectral-norm"])
    assert [v.name for v in found] == [
        "rmsnorm+none", "rmsnorm+spectral-norm", "dyt+none", "dyt+spectral-norm",
    ]  # fmt: skip


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"weight must be one of .*'weight-norm'.*, not 'rmsnorm'"):
        Variant("a", weight="rmsnorm").check()
    with pytest.raises(ValueError, match="keeps weights on a sphere of its own"):
        tasks.load(settings(model=TINY)).build(Variant("a", placement="ngpt", weight="weight-norm"), 1)
