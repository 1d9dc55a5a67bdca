"""The slots of a variant: one table of what can be named, how it is checked, and what becomes of it."""

import dataclasses

import pytest
import torch
from helpers import TINY, losses, run, settings, trained
from torch import nn
from torch.nn import functional as F

from normkit import cli
from normkit.lab.plan import data, tasks, variants
from normkit.lab.plan.losses import fits, loss_for, objective
from normkit.lab.plan.variants import SLOTS, Variant, cross
from normkit.lab.report import page as report


@pytest.mark.parametrize("name", SLOTS)
def test_every_slot_is_a_field_an_option_and_can_be_crossed(name):
    default = getattr(Variant, name)
    options = cli.parser().parse_args(["compare", f"--{name}", default, default])
    assert getattr(options, name) == [default, default]
    assert [getattr(v, name) for v in cross(**{name: [default]})] == [default]
    assert name in dataclasses.asdict(Variant("a"))
    Variant("a").check()


@pytest.mark.parametrize("name", SLOTS)
def test_a_name_that_no_method_has_is_refused_by_every_slot(name):
    with pytest.raises(ValueError, match="no-such-thing"):
        Variant("a", **{name: "no-such-thing"}).check()


def test_a_core_must_be_one():
    with pytest.raises(ValueError, match=r"attention must be one of .*'softmax'.*, not 'rmsnorm'"):
        Variant("a", attention="rmsnorm").check()


def test_how_many_layers_there_are_is_logged_and_reported(tmp_path):
    events = trained(tmp_path, run(norm="rmsnorm", name="a", steps=1))
    assert events[0]["layers"] == {"norm": "5 norms"}
    assert report.describe({"name": "a", "norm": "rmsnorm"}, events[0]["layers"]) == "norm rmsnorm (5 norms)"


def test_losses_that_fit_are_those_of_scores_and_labels_alone():
    from normkit import catalog

    assert fits(catalog.card("density-normalized-edge-loss"))
    for name in ("nkd", "nd-loss", "bnpo", "rmsnorm"):
        with pytest.raises(ValueError, match=f"loss '{name}' is not one of scores and labels alone; .*cross-entropy"):
            loss_for(name)
    with pytest.raises(ValueError, match="cross-entropy takes label_smoothing, not smoothing"):
        loss_for("cross-entropy:smoothing=0.1")
    with pytest.raises(ValueError, match="no loss 'crossentropi'; did you mean 'cross-entropy'"):
        loss_for("crossentropi")


def test_a_loss_is_trained_and_all_are_compared_by_the_plain_one(tmp_path):
    """A mean of cross-entropies, as the baseline of graph edges is, is cross-entropy."""
    named = {"plain": "cross-entropy", "same": "density-normalized-edge-loss:mode=baseline"}
    named["smooth"] = "cross-entropy:label_smoothing=0.5"
    found = {key: trained(tmp_path / key, run(name=key, loss=loss)) for key, loss in named.items()}
    start = {losses(events, "eval")[0] for events in found.values()}
    assert len(start) == 1
    torch.testing.assert_close(losses(found["same"], "eval"), losses(found["plain"], "eval"), rtol=1e-4, atol=0)
    assert losses(found["smooth"]) != losses(found["plain"])


def test_labels_that_are_hidden_are_learned_by_no_loss():
    scores, labels = torch.randn(6, 5), torch.tensor([1, -100, 2, -100, 3, 4])
    found = objective("density-normalized-edge-loss:mode=baseline", lambda model, batch: (scores, labels))
    torch.testing.assert_close(found(nn.Identity(), None), F.cross_entropy(scores, labels))


class Batches:
    unit = "samples"

    def __init__(self, batch):
        self.batch = batch

    def train(self, seed, step):
        return self.batch

    def validation(self):
        return [self.batch]


def test_a_loss_needs_scores_and_labels():
    x = torch.randn(4, 3)
    own = tasks.own_batches(Batches((x, x)), lambda variant, seed: nn.Linear(3, 3))
    with pytest.raises(ValueError, match="needs scores and labels"):
        own.objective(Variant("a", loss="cross-entropy:label_smoothing=0.1"))
    labelled = tasks.own_batches(Batches((x, torch.tensor([0, 1, 2, 0]))), lambda variant, seed: nn.Linear(3, 3))
    smooth = labelled.objective(Variant("a", loss="cross-entropy:label_smoothing=0.1"))
    assert smooth(nn.Linear(3, 3), labelled.data.train(1, 1)).isfinite()


def test_accuracy_of_a_loss_of_its_own_is_of_the_scores():
    images = data.Images(torch.rand(40, 1, 8, 8), torch.arange(40) % 2, 4, "here")
    task = tasks.image_class(images, lambda variant, seed: nn.Identity())
    scores = torch.tensor([[0.1, 0.9], [0.9, 0.1]])
    assert task.accuracy(lambda x: scores, (None, torch.tensor([1, 1]))) == 0.5


def test_parts_of_a_transformer_are_refused_elsewhere():
    with pytest.raises(ValueError, match="model 'resnet' has its own attention; only 'decoder' and 'vit'"):
        Variant("a", attention="galerkin").require_parts_of("resnet")
    Variant("a", norm="dyt", loss="nkd").require_parts_of("resnet")


def test_the_table_is_all_that_a_model_asks():
    variant = Variant("a", norm="dyt", placement="post-norm", attention="galerkin", linear="sdd-linear")
    assert set(variant.arguments()) == {"norm", "placement", "core", "linear"}
    assert variants.OF_A_VARIANT[: len(SLOTS)] == tuple(SLOTS)
    model = tasks.load(settings(model=TINY)).build(dataclasses.replace(variant, attention="softmax"), 1)
    assert variant.count_layers(model)["norm"].endswith(" norms")
