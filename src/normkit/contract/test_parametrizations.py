"""Contract of parametrizations: they come off cleanly, and do not wander."""

import pytest
import torch
from torch.nn.utils import parametrize

import normkit as nk
from normkit.contract.subject import close, methods
from normkit.kinds.module import PARAMETRIZATION

METHODS = methods(lambda kind: kind is PARAMETRIZATION)


def wrapped(name):
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 8, dtype=torch.float64)
    parametrize.register_parametrization(layer, "weight", nk.card(name).small().double())
    return layer


@pytest.mark.line("removed")
@pytest.mark.parametrize("name", METHODS)
def test_removing_it_leaves_a_plain_layer_of_the_same_weight(name):
    layer, x = wrapped(name).eval(), torch.randn(3, 5, dtype=torch.float64)
    want = layer(x)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is torch.nn.Linear
    assert [key for key, _ in layer.named_parameters()] == ["bias", "weight"]
    close(layer(x), want, rtol=0, atol=0)


@pytest.mark.line("drift")
@pytest.mark.parametrize("name", METHODS)
def test_fifty_passes_without_a_step_leave_the_weight(name):
    layer, x = wrapped(name), torch.randn(3, 5, dtype=torch.float64)
    first = layer(x).detach()
    for _ in range(49):
        last = layer(x).detach()
    close(last, first)
