"""The library's own norms that probing does not explain are named by their class, unless they were changed."""

import pytest
import torch
from torch import nn

import normkit as nk


class Derived(nk.PowerNorm):
    """May compute anything."""


def used(name):
    torch.manual_seed(0)
    module = nk.card(name).small(8)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    module(*nk.card(name).draw(8, 4, dtype=torch.float32))
    return module


@pytest.mark.parametrize("name", ["powernorm", "batch-renorm", "crmsnorm", "onlinenorm"])
def test_a_norm_of_ours_is_named_by_its_class_with_its_numbers(name):
    module = used(name)
    match = nk.recognize(module)
    assert (match.name, match.how, match.error) == (name, "by class", {})
    (x,) = nk.card(name).draw(8, 4, dtype=torch.float32, optional=False, seed=1)
    torch.testing.assert_close(match.module.eval()(x), module.eval()(x), rtol=0, atol=0)


def test_a_number_that_was_set_afterwards_is_the_one_it_has():
    module = nk.PowerNorm(8, alpha_fwd=0.8)
    module.eps = 1e-3
    assert nk.recognize(module).kwargs == {"num_features": 8, "alpha_fwd": 0.8, "eps": 1e-3}


def with_hook(module):
    module.register_forward_hook(lambda *called: None)
    return module


def with_setting(module):
    module.group_num = 2
    return module


def with_part(module):
    module.behind = nn.Tanh()
    return module


@pytest.mark.parametrize("change", [with_hook, with_setting, with_part, lambda module: Derived(8)])
def test_one_that_was_changed_is_not(change):
    assert not nk.recognize(nn.Sequential(change(nk.PowerNorm(8)))).found


@pytest.mark.parametrize("name", ["liebn", "fin", "adaptive-layernorm"])
def test_points_of_manifolds_and_what_takes_several_tensors_or_has_matrices_are_named_and_not_exchanged(name):
    model = nn.Sequential(nn.LayerNorm(8), nk.card(name).small(8))
    assert [match.name for match in nk.recognize(model).found.values()] == ["layernorm", name]
    assert nk.recognize(model[1]).name == name
    nk.swap(model, "rmsnorm")
    assert [type(part).__name__ for part in model] == ["RMSNorm", type(model[1]).__name__]
    assert type(model[1]) is nk.card(name).entry


def test_a_norm_that_was_swapped_in_is_swapped_again():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    x = torch.randn(3, 5, 4)
    want = model(x)
    nk.swap(model, "powernorm")
    assert {match.name for match in nk.recognize(model).values()} == {"powernorm"}
    nk.swap(model, {"powernorm": "layernorm"})
    torch.testing.assert_close(model(x), want)
