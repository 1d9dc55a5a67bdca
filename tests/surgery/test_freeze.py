"""Training only the norms: what is left to train, and where it starts."""

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.surgery.statistics.freeze import start, train_only


def model():
    return nn.ModuleDict(
        {
            "stem": nn.Conv2d(3, 4, 3),
            "torchs": nn.BatchNorm2d(4),
            "ours": nk.create("batchnorm", 4),
            "bare": nn.BatchNorm2d(4, affine=False),
            "layer": nn.LayerNorm(4),
            "rms": nk.create("rmsnorm", 4),
            "hidden": nn.Linear(4, 4),
            "head": nn.Linear(4, 2),
        }
    )


BATCH = ["torchs.weight", "torchs.bias", "ours.weight", "ours.bias"]


@pytest.mark.parametrize(
    "options, names",
    [
        ({}, BATCH),
        ({"output": True}, [*BATCH, "head.weight", "head.bias"]),
        ({"exceptions": ["hidden.*"]}, [*BATCH, "hidden.weight", "hidden.bias"]),
        ({"selection": "norm"}, [*BATCH, "layer.weight", "layer.bias", "rms.weight"]),
    ],
    ids=str,
)
def test_only_gain_and_shift_are_trained(options, names):
    net = model().train()
    assert train_only(net, **options) == names
    assert [n for n, p in net.named_parameters() if p.requires_grad] == names
    assert all(m.training for m in net.modules())


def test_a_shared_norm_counts_once_and_a_second_call_undoes_the_first():
    norm = nn.BatchNorm1d(3)
    net = nn.Sequential(norm, nn.Linear(3, 3), norm)
    assert train_only(net, output=True) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert train_only(net) == ["0.weight", "0.bias"]
    assert not net[1].weight.requires_grad


def test_running_statistics_still_move():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    train_only(net)
    net(torch.randn(8, 3)).square().sum().backward()
    assert net[1].num_batches_tracked == 1
    assert net[0].weight.grad is None
    assert net[1].weight.grad is not None


def test_an_unknown_selection_is_named():
    with pytest.raises(ValueError, match="selection must be one of 'batchnorm', 'norm'"):
        train_only(model(), "bn")
    with pytest.raises(ValueError, match="norms must be one of"):
        start(model(), "ones")


@pytest.mark.parametrize(
    "kind, low, high, shift",
    [("uniform", 0, 1, 0), ("positivenegative", -1, 1, 0), ("fixed", 1, 1, 0), ("oneone", 1, 1, 1)],
)
def test_starting_values(kind, low, high, shift):
    net = nn.Sequential(nn.Linear(100, 400), nn.BatchNorm1d(400), nk.create("batchnorm", 400), nn.LayerNorm(400))
    start(net, kind, torch.Generator().manual_seed(0))
    for norm in net[1:3]:
        assert (norm.weight.min() >= low).all()
        assert (norm.weight.max() <= high).all()
        assert abs(norm.weight.mean() - (low + high) / 2) < 0.1
        assert norm.weight.unique().numel() > 300 or low == high
        assert (norm.bias == shift).all()
    # Kaiming-normal for 100 inputs: a deviation of sqrt(2 / 100), known to 1/sqrt(2 * 40000)
    assert abs(net[0].weight.std() / 0.02**0.5 - 1) < 0.02
    assert not net[0].bias.any()
    assert (net[3].weight == 1).all()


@pytest.mark.parametrize("exceptions", ["2.*", ["2.weight"], ["3.*"]])
def test_exceptions_are_names_of_tied_parameters_too_and_may_be_one_string(exceptions):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), *(nn.Linear(2, 2, bias=False) for _ in range(2)))
    model[3].weight = model[2].weight
    assert train_only(model, exceptions=exceptions) == ["1.weight", "1.bias", "2.weight"]
    assert not model[0].weight.requires_grad


def test_an_exception_that_fits_nothing_is_named():
    with pytest.raises(ValueError, match=r"exceptions has '9\.\*', which fits no parameter of 0.weight"):
        train_only(nn.Sequential(nn.Linear(2, 2)), exceptions=["9.*"])
