"""What pages say of statistics is true: entries are changed, and where outputs move is compared with the words."""

import copy

import pytest
import torch

import normkit as nk
from normkit import reference
from normkit.contract.subject import outputs

STATISTICS = {name: reference.statistic(nk.card(name)) for name in nk.methods() if nk.card(name).shape.axes}
SAID = [name for name, words in STATISTICS.items() if words]
ALONE = [name for name in SAID if STATISTICS[name].startswith("no statistic")]
EACH = [name for name in SAID if STATISTICS[name].startswith("statistics of each")]


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


@pytest.mark.parametrize("name", ALONE)
def test_where_every_number_is_mapped_by_itself_no_other_moves(name):
    steps, _ = moves(name)
    assert not steps.any()


@pytest.mark.parametrize("name", EACH)
def test_statistics_of_each_channel_leave_the_others_where_they_are(name):
    steps, dims = moves(name)
    card = nk.card(name)
    for axis in reference.axes(card):
        apart = axis.spanned == "none"
        assert not (apart and steps[:, list(dims[axis.name])].any()), f"an entry moves outputs along {axis.name}"


@pytest.mark.parametrize("name", [name for name in EACH if "what is kept" not in STATISTICS[name]])
def test_statistics_span_what_they_are_said_to_be_taken_over(name):
    steps, dims = moves(name)
    whole = [axis.name for axis in reference.axes(nk.card(name)) if axis.spanned == "whole"]
    for axis in whole:
        assert steps[:, list(dims[axis])].any(), f"no entry moves outputs along {axis}"


def test_what_is_said_where_the_words_were_untrue():
    def said(name):
        return reference.statistic(nk.card(name))

    assert {said(name) for name in ("agc", "muon", "swan", "sinkgd", "normalized-gd", "stable-spam", "adamp")} == {""}
    assert "N of a group" in said("graph-norm")
    assert "▒" in reference.drawing(nk.card("graph-norm"))
    assert "along C too" in said("switchable-norm")
    assert "along C too" in said("batch-channel-norm")
    assert said("onlinenorm").endswith("in the order of N")
    assert len(ALONE) < 30


def test_an_optimizer_that_keeps_what_its_base_does_is_not_said_to_keep_nothing(capsys):
    from normkit import cli

    cli.main(["show", "agc"])
    page = capsys.readouterr().out
    assert "State of a parameter: the base's" in page
    assert "\nState\n" not in page
