"""Contract, mistakes: each is named, and a failed call leaves the state as it was."""

import re

import pytest
import subject
import torch
from subject import METHODS, build, draw

import normkit as nk
from normkit.kinds.kind import example


def arguments(name):
    return nk.card(name).signature.parameters


def fails(module, inputs, kinds=(ValueError, TypeError)):
    before = subject.state(module)
    with pytest.raises(kinds) as caught:
        module(*inputs)
    subject.close(subject.state(module), before, rtol=0, atol=0)
    return str(caught.value)


@pytest.mark.parametrize("name", METHODS)
def test_a_wrong_width_is_named(name):
    if not nk.card(name).shape.has("C"):
        pytest.skip("takes any width")
    if nk.card(name).width is None:
        pytest.skip("takes any width")
    module = build(name, 8)
    message = fails(module, draw(name, 9), ValueError)
    assert re.search(r"\b(x|q|grouped|content|anchors|message|condition|style)\b", message)
    assert re.search(r"\d", message)


@pytest.mark.parametrize("name", METHODS)
def test_integers_and_non_tensors_are_named(name):
    module = build(name)
    first, *rest = draw(name)
    wrong = first.long() if first.is_floating_point() else first.double()
    assert str(wrong.dtype).removeprefix("torch.") in fails(module, [wrong, *rest], TypeError)
    assert "list" in fails(module, [first.tolist(), *rest], TypeError)


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_keyword_gets_the_nearest(name):
    args, kwargs = nk.card(name).given(epz=1)
    with pytest.raises(TypeError, match="epz"):
        nk.create(name, *args, **kwargs)


@pytest.mark.parametrize("value", [-1.0, float("nan")])
@pytest.mark.parametrize("name", METHODS)
def test_a_bad_eps_is_refused(name, value):
    if "eps" not in arguments(name):
        pytest.skip("takes no eps")
    with pytest.raises(ValueError, match="eps"):
        nk.card(name).small(eps=value)


@pytest.mark.parametrize("name", METHODS)
def test_eps_of_zero_is_honoured(name):
    if "eps" not in arguments(name):
        pytest.skip("takes no eps")
    module = nk.card(name).small(eps=0.0).double()
    assert module.arguments["eps"] == 0.0
    for output in subject.outputs(module(*draw(name))):
        assert not torch.isnan(output).any()


@pytest.mark.parametrize("value", [0, -3, 2.5, "8", None])
@pytest.mark.parametrize("name", METHODS)
def test_a_bad_feature_count_is_refused(name, value):
    card = nk.card(name)
    width = card.width
    if width is None:
        pytest.skip("takes no feature count")
    args, named = ((), {width.name: value}) if width.kind is width.KEYWORD_ONLY else ((value,), {})
    with pytest.raises((ValueError, TypeError), match=width.name):
        nk.create(name, *args, **named, **example(card, 8))


@pytest.mark.parametrize("name", METHODS)
def test_further_inputs_of_the_wrong_shape_are_named(name):
    card = nk.card(name)
    module = build(name)
    given = draw(name)
    for position, key in enumerate(card.inputs, start=1):
        wrong = list(given)
        wrong[position] = torch.cat([torch.atleast_1d(given[position])] * 2, dim=0)[..., None]
        message = fails(module, wrong, (ValueError, TypeError))
        assert key in message, f"the message does not name {key}: {message}"


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'rmsnorm'"):
        nk.create("rmsnrm", 8)
    with pytest.raises(AttributeError, match="RMSNrm"):
        nk.RMSNrm  # noqa: B018


def test_a_wrong_dtype_argument_is_named():
    with pytest.raises(TypeError, match="dtype"):
        nk.create("rmsnorm", 8, dtype=torch.int32)
