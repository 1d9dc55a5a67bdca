"""Contract of plain functions: gradients, half precision, and options that are bound and saved."""

import inspect
import itertools
import pickle
import re

import numpy as np
import pytest
import torch

import normkit as nk
from normkit.contract.subject import close, methods, outputs
from normkit.contract.values import over
from normkit.kinds import FUNCTION, exemption
from normkit.kinds.kind import layouts, sizes

METHODS = methods(lambda kind: kind is FUNCTION)
ANY_WORD = {("filter-normalization", "ignore")}  # all but one mean the same to its authors
DIFFERENTIABLE = [name for name in METHODS if exemption(nk.card(name).exempt, "gradcheck") is None]
GALLERY = [name for name in METHODS if any("G" in layout.axes for layout in layouts(nk.card(name)))]


@pytest.mark.line("gradcheck")
@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_is_the_derivative(name):
    card = nk.card(name)
    subject = card.kind.subject(card, 4, batch=3, trailing=(3, 2))
    given = [x.requires_grad_() if torch.is_tensor(x) and x.is_floating_point() else x for x in subject.inputs]
    assert torch.autograd.gradcheck(lambda *x: tuple(outputs(subject.call(*x))), given, fast_mode=True)


def differentiable(name):
    """What of a function has a gradient, as a function of its real inputs, and these inputs; there may be none."""
    card = nk.card(name)
    subject = card.kind.subject(card, 4, batch=3, trailing=(3, 2))
    places = [at for at, x in enumerate(subject.inputs) if torch.is_tensor(x) and x.is_floating_point()]

    def results(*values):
        inputs = list(subject.inputs)
        for at, value in zip(places, values, strict=True):
            inputs[at] = value
        return outputs(subject.call(*inputs))

    values = [subject.inputs[at].requires_grad_() for at in places]
    which = [result.requires_grad for result in results(*values)]
    return lambda *values: tuple(itertools.compress(results(*values), which)), values if any(which) else []


@pytest.mark.line("second-derivatives")
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_second_derivative_is_right(name):
    call, values = differentiable(name)
    loosely = {"fast_mode": True, "atol": 1e-4, "rtol": 1e-2, "check_undefined_grad": False}
    assert not values or torch.autograd.gradgradcheck(call, values, **loosely)


@pytest.mark.line("forward")
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_mode_gives_the_derivatives_of_the_backward_pass(name):
    call, values = differentiable(name)
    if not values:
        return
    generator = torch.Generator().manual_seed(0)
    along = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in values]
    given, tangents = torch.func.jvp(call, tuple(x.detach() for x in values), tuple(along))
    sent = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in given]
    back = torch.autograd.grad(call(*values), values, sent, allow_unused=True, materialize_grads=True)
    forth = sum((a * b).sum() for a, b in zip(sent, tangents, strict=True))
    close(forth, sum((a * b).sum() for a, b in zip(back, along, strict=True)))


@pytest.mark.line("half")
@pytest.mark.parametrize("name", METHODS)
@over(dtype=[torch.bfloat16, torch.float16])
def test_half_precision_stays_close_to_double(name, dtype):
    card = nk.card(name)
    subject = card.kind.subject(card, dtype=dtype)
    got = outputs(subject.call(*subject.inputs))
    want = outputs(subject.call(*(x.double() if x.is_floating_point() else x for x in subject.inputs)))
    for a, b in zip(got, want, strict=True):
        # the work is done in float32, so that the result alone is rounded; float16 ends at 65504 and begins at 6e-8
        eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal
        most = torch.finfo(dtype).max
        close(a.double().clamp(-most, most), b.double().clamp(-most, most), rtol=eps + 1e-4, atol=eps * tiny + 1e-5)


@pytest.mark.line("pickle")
@pytest.mark.parametrize("name", METHODS)
def test_a_function_with_its_options_survives_pickle(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    again = pickle.loads(pickle.dumps(subject.made))
    close(outputs(again(*subject.inputs)), outputs(subject.call(*subject.inputs)))


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_option_and_a_wrong_input_are_named(name):
    card = nk.card(name)
    with pytest.raises(TypeError, match="epz"):
        nk.create(name, **card.example, epz=1)
    subject = card.kind.subject(card)
    for place, key in enumerate(card.kind.takes(card)[: len(subject.inputs)]):
        wrong = list(subject.inputs)
        wrong[place] = wrong[place].tolist()
        with pytest.raises(TypeError, match=rf"^(?!{key}:).*\b{key}\b"):
            subject.call(*wrong)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_input_is_an_option(name):
    card = nk.card(name)
    takes = list(inspect.signature(card.entry).parameters.values())[1:]
    neither = [p.name for p in takes if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in card.inputs]
    assert not neither, f"{name}: {neither} must be named in the card's inputs, or stand behind a star as options do"


@pytest.mark.parametrize("name", METHODS)
def test_nan_for_a_number_and_another_word_for_a_word_are_named(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    for argument, parameter in card.signature.parameters.items():
        usual = card.example.get(argument, parameter.default)
        if type(usual) in (float, int, str) and (name, argument) not in ANY_WORD:
            bad = nk.create(name, **{**card.example, argument: "nonesuch" if isinstance(usual, str) else float("nan")})
            with pytest.raises((TypeError, ValueError), match=rf"^(?!{argument}:).*\b{argument}\b"):
                bad(*subject.inputs)


@pytest.mark.parametrize("name", METHODS)
def test_a_tensor_that_holds_no_numbers_is_taken_or_named(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    every = range(len(subject.inputs))
    named = "|".join([*card.kind.takes(card), "train: state", "train: shared", "learn: count"])  # given by the user
    for places in [*([place] for place in every), every]:
        given = [value.to("meta") if place in places else value for place, value in enumerate(subject.inputs)]
        message = refusal(subject.call, given)
        assert message is None or re.search(rf"\b({named})\b.*\bmeta\b", message)


def refusal(call, given):
    try:
        call(*given)
    except (TypeError, ValueError) as error:
        return str(error)


@pytest.mark.line("arrays")
@pytest.mark.parametrize("name", METHODS)
def test_arrays_give_the_numbers_of_tensors(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    if not subject.inputs:
        pytest.skip("takes no tensors")
    before = [x.clone() for x in subject.inputs]
    got = subject.call(*(x.numpy() for x in subject.inputs))
    want = outputs(subject.call(*subject.inputs))
    for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert isinstance(a, np.ndarray | np.generic)
        close(torch.as_tensor(a), b, rtol=0, atol=0)
    close(subject.inputs, before, rtol=0, atol=0)


@pytest.mark.line("gallery")
@pytest.mark.parametrize("name", GALLERY)
def test_a_permutation_of_the_gallery_permutes_the_result(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    axes = [layout.axes for layout in layouts(card) if not layout.optional]
    size = sizes()["G"]
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    moved = [
        x.index_select(own.index("G"), order) if "G" in own else x for own, x in zip(axes, subject.inputs, strict=True)
    ]
    for a, b in zip(outputs(subject.call(*moved)), outputs(subject.call(*subject.inputs)), strict=True):
        close(a, b[..., order] if b.dim() and b.shape[-1] == size else b)
