"""`nk.adapt`: batch norms mix what they learned with the batch that they are shown."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import library


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4, eps=0.1, affine=False))
    for _ in range(3):
        made(torch.randn(8, 3, 6, 6) * 2 + 1)
    nn.init.normal_(made[1].weight)
    return made.double().eval()


def test_a_batch_norm_mixes_both_statistics(model):
    x = torch.randn(5, 3, 6, 6, dtype=torch.float64) * 3 - 1
    old, hidden = copy.deepcopy(model), model[0](x).detach()
    report = nk.adapt(model, weight=0.3, where="1")
    assert report.model is model
    assert [change.site for change in report] == ["1"]
    mean = 0.7 * old[1].running_mean + 0.3 * hidden.mean((0, 2, 3))
    var = 0.7 * old[1].running_var + 0.3 * hidden.var((0, 2, 3))
    want = nn.functional.batch_norm(hidden, mean, var, old[1].weight, old[1].bias)
    torch.testing.assert_close(model[:2](x), want)
    assert type(model[3]) is nn.BatchNorm2d
    assert isinstance(model[1].weight, nn.Parameter)


def test_a_weight_of_zero_changes_nothing_and_a_copy_is_a_copy(model):
    x = torch.randn(5, 3, 6, 6, dtype=torch.float64)
    wanted = model(x)
    changed = nk.adapt(model, weight=0.0, inplace=False).model
    torch.testing.assert_close(changed(x), wanted)
    assert [type(part).__name__ for part in changed] == ["Conv2d", "AlphaBatchNorm", "ReLU", "AlphaBatchNorm"]
    assert type(model[1]) is nn.BatchNorm2d
    before = copy.deepcopy(changed.state_dict())
    nk.adapt(model, weight=1.0, inplace=False).model(x + 5)
    torch.testing.assert_close(dict(changed.state_dict()), dict(before), rtol=0, atol=0)


def test_an_activation_behind_a_norm_stays():
    timm = library("timm")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), timm.layers.BatchNormAct2d(8)).eval()
    nk.adapt(model)
    assert model(torch.randn(2, 3, 8, 8)).min() == 0


@pytest.mark.parametrize(
    ("parts", "options", "said"),
    [
        ([nn.Linear(3, 3)], {}, "no batch norm with running statistics there"),
        ([nn.BatchNorm1d(3)], {"where": "nowhere"}, "no batch norm"),
        ([nn.BatchNorm1d(3)], {"weight": 1.5}, "weight must lie in"),
    ],
)
def test_what_cannot_be_done_is_refused(parts, options, said):
    with pytest.raises(ValueError, match=said):
        nk.adapt(nn.Sequential(*parts), **options)


def test_others_are_left_alone_with_the_reason():
    report = nk.adapt(nn.Sequential(nn.BatchNorm1d(4), nk.create("powernorm", 4)))
    assert [change.became is None for change in report] == [False, True]
    assert report[1].why_not
