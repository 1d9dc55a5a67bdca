"""``torch.set_default_device`` and ``set_default_dtype`` change no answer: its place and its type are the inputs'."""

import contextlib

import pytest
import torch

import answers
import normkit as nk
from normkit.contract.subject import close, methods, outputs
from normkit.kinds import ADAPTER

METHODS = [*answers.CALLED, *methods(lambda kind: kind is ADAPTER)]
OF_NO_TENSORS = {"gaussian-normality-threshold", "turboquant-codebook"}  # what they answer is made by the defaults


@contextlib.contextmanager
def other_defaults():
    """A device on which numbers are lost, so that what is made there is missed, and twice the bits."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def answered(card, defaults):
    torch.manual_seed(0)
    subject = card.kind.subject(card, dtype=torch.float32)
    inputs = [x.clone().requires_grad_(x.is_floating_point()) if torch.is_tensor(x) else x for x in subject.inputs]
    leaves = [x for x in [*inputs, *subject.learned.values()] if torch.is_tensor(x) and x.requires_grad]
    with defaults:
        given = outputs(subject.call(*inputs))
        from_learned = [y for y in given if y.requires_grad]
        if from_learned:
            torch.autograd.backward(from_learned, [torch.ones_like(y) for y in from_learned])
    return [y.detach() for y in given] + [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in OF_NO_TENSORS])
def test_a_method_answers_where_its_inputs_are_and_in_their_type(name):
    card = nk.card(name)
    want = answered(card, contextlib.nullcontext())
    close(answered(card, other_defaults()), want, rtol=0, atol=0)
