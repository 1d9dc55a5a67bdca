"""What pages say of statistics is true: entries are changed, and where outputs move is compared with the words."""

import copy

import pytest
import torch

import normkit as nk
from normkit import reference
from normkit.contract.subject import outputs

METHODS = [name for name in nk.methods() if nk.card(name).shape.axes]


def moves(name, count=24):
    """The steps, along each dimension, from changed entries to outputs that moved."""
    card = nk.card(name)
    torch.manual_seed(7)
    subject = card.kind.subject(card, batch=5, seed=1, trailing=(4, 3), optional=True)
    x, *others = subject.inputs
    with torch.no_grad():
        for parameter in subject.learned.values():
            parameter.add_(0.3 * torch.rand(parameter.shape, dtype=torch.float64).to(parameter.dtype))
    module = isinstance(subject.made, torch.nn.Module)

    def call(x):
        used = copy.deepcopy(subject.made) if module else subject.call
        torch.manual_seed(2)
        return outputs(used(x, *others))[0].detach().clone()

    before, found = call(x), []
    for at in torch.randperm(x.numel(), generator=torch.Generator().manual_seed(4))[:count]:
        place = torch.stack(torch.unravel_index(at, x.shape))
        for by in (-0.8, 20.0):
            other = x.clone(memory_format=torch.contiguous_format)
            other.view(-1)[at] += by
            found += [step - place for step in (call(other) != before).nonzero()]
    return torch.stack(found), reference._dims(card.shape.axes, x.dim())


@pytest.mark.parametrize("name", METHODS)
def test_outputs_move_where_the_words_say(name):
    """All that is said of a method in one case: the words come from running it, which importing this file shall not."""
    words = reference.statistic(nk.card(name))
    if words.startswith("no statistic"):
        assert not moves(name)[0].any(), "an entry moves the output of another"
    if not words.startswith("statistics of each"):
        return
    steps, dims = moves(name)
    for axis in reference.axes(nk.card(name)):
        moved = steps[:, list(dims[axis.name])].any()
        assert not (axis.spanned == "none" and moved), f"an entry moves outputs along {axis.name}"
        if axis.spanned == "whole" and "what is kept" not in words:
            assert moved, f"no entry moves outputs along {axis.name}"


def test_what_is_said_where_the_words_were_untrue():
    def said(name):
        return reference.statistic(nk.card(name))

    assert {said(name) for name in ("agc", "muon", "swan", "sinkgd", "normalized-gd", "stable-spam", "adamp")} == {""}
    assert "N of a group" in said("graph-norm")
    assert "▒" in reference.drawing(nk.card("graph-norm"))
    assert "along C too" in said("switchable-norm")
    assert "along C too" in said("batch-channel-norm")
    assert said("onlinenorm").endswith("in the order of N")
    for name in ("layernorm", "rmsnorm", "groupnorm", "batchnorm", "instancenorm", "softmax", "powernorm"):
        assert said(name).startswith("statistics ")


@pytest.mark.parametrize(
    ("name", "others"), [("adaln-zero", ["N", "L"]), ("adaptive-rmsnorm-zero", ["N", "L"]), ("cnf", ["N"])]
)
def test_of_several_outputs_the_first_tells_where_entries_reach(name, others):
    """The others are gates and log determinants, of shapes of their own."""
    assert reference.reach(name) == dict.fromkeys(others, "none") | {"C": "whole"}


def test_an_optimizer_that_keeps_what_its_base_does_is_not_said_to_keep_nothing(capsys):
    from normkit import cli

    cli.main(["show", "agc"])
    page = capsys.readouterr().out
    assert "State of a parameter: the base's" in page
    assert "\nState\n" not in page
