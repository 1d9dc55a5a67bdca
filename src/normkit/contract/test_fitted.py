"""Contract of what is set from data: half precision, saving, arrays, and data that are refused."""

import inspect
import io

import numpy as np
import pytest
import torch

import normkit as nk
from normkit.contract.subject import close, methods, outputs
from normkit.contract.values import over
from normkit.kinds import FITTED

METHODS = methods(lambda kind: kind is FITTED)


def prepared(name, dtype=torch.float64):
    card = nk.card(name)
    return card, card.kind.subject(card, dtype=dtype)


@pytest.mark.line("half")
@pytest.mark.parametrize("name", METHODS)
@over(dtype=[torch.bfloat16, torch.float16])
def test_half_precision_stays_close_to_double(name, dtype):
    card, subject = prepared(name, dtype)
    exact = card.small().double()
    exact.load_state_dict(subject.made.state_dict())
    want = outputs(exact(*(x.double() if x.is_floating_point() else x for x in subject.inputs)))
    for a, b in zip(outputs(subject.call(*subject.inputs)), want, strict=True):
        eps, most = torch.finfo(dtype).eps, b.double()[b.isfinite()].abs().max().item() if b.isfinite().any() else 0
        close(a.double(), b.double(), rtol=4 * eps, atol=4 * eps * most)


@pytest.mark.line("state")
@pytest.mark.parametrize("name", METHODS)
def test_what_was_found_is_loaded_into_one_that_was_never_set(name):
    card, subject = prepared(name)
    file = io.BytesIO()
    torch.save(subject.made.state_dict(), file)
    file.seek(0)
    other = card.small().double()
    other.load_state_dict(torch.load(file), strict=True)
    close(outputs(other(*subject.inputs)), outputs(subject.call(*subject.inputs)), rtol=0, atol=0)


@pytest.mark.line("arrays")
@pytest.mark.parametrize("name", METHODS)
def test_arrays_give_the_numbers_of_tensors(name):
    card = nk.card(name)
    setter, drawn = card.kind.setter(card.entry), card.draw(dtype=torch.float64)
    results = []
    for kind in (lambda x: x, lambda x: x.numpy()):
        made, given = card.small().double(), list(map(kind, drawn))
        if setter:
            getattr(made, setter)(*given)
        results.append(made(*given[: len(card.kind.takes(card))]))
    want, got = (output if isinstance(output, tuple) else (output,) for output in results)
    for a, b in zip(got, want, strict=True):
        assert isinstance(a, np.ndarray | np.generic)
        close(torch.as_tensor(a), b, rtol=0, atol=0)


@pytest.mark.line("refused")
@pytest.mark.parametrize("name", METHODS)
def test_nan_is_refused_and_nothing_changed(name):
    card, subject = prepared(name)
    before = {key: value.clone() for key, value in subject.made.named_buffers()}
    setter = getattr(subject.made, card.kind.setter(card.entry) or "forward")
    first, *rest = card.draw(dtype=torch.float64)
    first.view(-1)[0] = torch.nan
    key = next(iter(inspect.signature(setter).parameters))
    with pytest.raises(ValueError, match=rf"\b{key}\b"):
        setter(first, *rest)
    close(dict(subject.made.named_buffers()), before, rtol=0, atol=0)
