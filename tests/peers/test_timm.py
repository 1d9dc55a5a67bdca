"""Timm's norms and optimizers beside ours, with their own arguments."""

import inspect

import pytest
import timm.layers
import timm.optim
import torch
from steps_side_by_side import step_both

import normkit as nk
from normkit.catalog import entry_names

NORMS = {
    "LayerNorm": (nk.LayerNorm, {"eps": 1e-6}, (2, 5, 8)),
    "LayerNorm2d": (nk.LayerNorm2d, {"eps": 1e-6}, (2, 8, 5, 4)),
    "RmsNorm": (nk.RMSNorm, {"eps": 1e-6}, (2, 5, 8)),
    "RmsNorm2d": (nk.RMSNorm2d, {"eps": 1e-6}, (2, 8, 5, 4)),
    "GroupNorm1": (lambda n, **options: nk.GroupNorm(1, n, **options), {"eps": 1e-5}, (2, 8, 5, 4)),
    "EvoNorm2dB0": (nk.EvoNorm2dB0, {}, (4, 8, 5, 4)),
    "FilterResponseNormTlu2d": (nk.FilterResponseNormTlu2d, {}, (4, 8, 5, 4)),
}
OPTIMIZERS = {
    "AdamP": (nk.AdamP, {"weight_decay": 0.1, "nesterov": True}),
    # without nesterov timm projects a copy of the momentum; the authors' code and ours, the momentum itself
    "SGDP": (nk.SGDP, {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    "Lion": (nk.Lion, {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_has_timms_numbers_and_names(name, training):
    ours, options, shape = NORMS[name]
    theirs = getattr(timm.layers, name)(8, **options).double().train(training)
    module = ours(8, **options).double().train(training)
    with torch.no_grad():
        for p in theirs.parameters():
            p.uniform_(0.5, 1.5)
    module.load_state_dict(theirs.state_dict())
    x = (0.05 * torch.randn(shape, dtype=torch.float64)).requires_grad_()  # so small that eps matters
    y, want = module(x), theirs(x)
    in_float32 = 1e-5 if name.startswith(("EvoNorm", "Filter")) else 1e-9  # as timm works these out whatever the type
    torch.testing.assert_close(y, want, rtol=in_float32, atol=in_float32)
    grads = (torch.autograd.grad(out.sin().sum(), x)[0] for out in (y, want))
    torch.testing.assert_close(*grads, rtol=10 * in_float32, atol=10 * in_float32)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_takes_timms_steps(name):
    ours, options = OPTIMIZERS[name]
    shapes = ((4, 3), (5,), (4, 3, 3, 3))
    lists = step_both([getattr(timm.optim, name), ours], shapes, **options)
    for p, q in zip(*lists, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


OTHER_DEFAULTS = {"LayerNorm": "the name is torch's as well, whose eps it has"}


@pytest.mark.parametrize("name", sorted({*entry_names()} & {*dir(timm.layers)} - {*OTHER_DEFAULTS}))
def test_a_name_of_timms_has_timms_defaults(name):
    theirs, ours = (inspect.signature(getattr(place, name)).parameters for place in (timm.layers, nk))
    for key in theirs.keys() & ours.keys():
        assert ours[key].default == theirs[key].default, key
