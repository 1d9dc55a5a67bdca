"""Contract of parametrizations: they go on layers, come off cleanly, and do not wander."""

import copy

import pytest
import torch
from torch.nn.utils import parametrize

import normkit as nk
from normkit.contract.subject import close, counting, methods
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


def applied(name, train=True):
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 8, dtype=torch.float64).train(train)
    nk.weight.apply(layer, name)
    return layer


@pytest.mark.line("baked")
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_what_is_baked_is_what_was_computed(name, train):
    layer, x = applied(name, train), torch.randn(3, 5, dtype=torch.float64)
    for _ in range(3):
        layer(x).sum().backward()
    want = layer.eval()(x)
    layer.train(train)
    nk.weight.bake(layer)
    assert type(layer) is torch.nn.Linear
    assert layer.training is train
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    close(layer(x), want, rtol=0, atol=0)


@pytest.mark.line("repeated")
@pytest.mark.parametrize("name", METHODS)
def test_evaluation_gives_the_same_weight_every_time(name):
    layer, x = applied(name), torch.randn(3, 5, dtype=torch.float64)
    layer(x)
    layer.eval()
    want, state = layer(x), copy.deepcopy(layer.state_dict())
    for _ in range(3):
        close(layer(x), want, rtol=0, atol=0)
    close(layer.state_dict(), state, rtol=0, atol=0)


@pytest.mark.line("reached")
@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_reaches_what_is_learned(name):
    layer = applied(name)
    torch.nn.functional.linear(torch.randn(3, 5, dtype=torch.float64), layer.weight).square().sum().backward()
    learned = dict(layer.parametrizations.named_parameters())
    assert "weight.original" in learned
    assert [key for key, p in learned.items() if p.grad is None or not p.grad.any()] == []


@pytest.mark.line("compile", "layer")
@pytest.mark.parametrize("name", METHODS)
def test_a_layer_that_has_it_compiles_without_a_break(name):
    torch._dynamo.reset()
    layer, x = applied(name), torch.randn(3, 5, dtype=torch.float64)
    twin = copy.deepcopy(layer)
    compiled = torch.compile(twin, backend=counting("aot_eager"), fullgraph=True)
    for _ in range(3):
        got, want = compiled(x), layer(x)
        got.sum().backward(), want.sum().backward()
        close(got, want)
    close([p.grad for p in twin.parameters()], [p.grad for p in layer.parameters()])
    close(twin.state_dict(), layer.state_dict())


@pytest.mark.parametrize("name", METHODS)
def test_it_is_not_put_on_twice(name):
    layer = applied(name)
    with pytest.raises(ValueError, match=rf"{name} already"):
        nk.weight.apply(layer, name)
    assert len(layer.parametrizations.weight) == 1
