"""Drop-in: torch's own module database, replayed on our classes, gives torch's numbers, gradients and state."""

import copy

import pytest
import torch
from torch.testing._internal.common_modules import module_db

import normkit as nk

OURS = {
    **{f"{name}Norm": f"{name}Norm" for name in ("Layer", "RMS", "Group")},
    **{f"{name}Norm{d}d": f"{name}Norm" for name in ("Batch", "Instance") for d in (1, 2, 3)},
}


def database():
    """Every set of arguments that torch tests its norms with, each with the input that it is called with."""
    for info in module_db:
        if info.module_cls.__name__ in OURS:
            for training in (True, False):
                for dtype in (torch.float32, torch.float64):
                    given = info.module_inputs_func(
                        info, device="cpu", dtype=dtype, requires_grad=False, training=training
                    )
                    for case in given:
                        yield info.module_cls, case, training, dtype


CASES = list(database())


def described(case):
    cls, given, training, dtype = case
    return f"{cls.__name__}-{given.desc}-{'train' if training else 'eval'}-{str(dtype).removeprefix('torch.')}"


def run(module, x):
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape))
    return {"y": y.detach(), "x": x.grad, **{name: p.grad for name, p in module.named_parameters()}}


def stir(module):
    """Move parameters off their initial values, so that none is multiplied by one or added as zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(0.5, 1.5, parameter.numel()).reshape(parameter.shape))


def test_the_database_holds_what_it_held():
    assert len(CASES) == 252


@pytest.mark.parametrize("case", CASES, ids=described)
def test_the_numbers_gradients_and_state_of_torch(case):
    cls, given, training, dtype = case
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    theirs = cls(*args, **kwargs, dtype=dtype).train(training)
    ours = getattr(nk, OURS[cls.__name__])(*args, **kwargs, dtype=dtype).train(training)
    (x,) = given.forward_input.args
    assert list(ours.state_dict()) == list(theirs.state_dict())
    stir(theirs)
    ours.load_state_dict(theirs.state_dict())
    for _ in range(2):
        torch.testing.assert_close(run(ours, x), run(theirs, x))
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    copy.deepcopy(theirs).load_state_dict(ours.state_dict())
