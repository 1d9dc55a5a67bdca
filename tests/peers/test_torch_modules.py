"""Torch's own database of modules: each norm with each of its samples, beside the same of normkit."""

import copy

import pytest
import torch
from torch.testing._internal.common_modules import module_db

import normkit as nk

OURS = {
    "BatchNorm": nk.BatchNorm,
    "GroupNorm": nk.GroupNorm,
    "InstanceNorm": nk.InstanceNorm,
    "LocalResponseNorm": nk.LocalResponseNorm,
    "LayerNorm": nk.LayerNorm,
    "RMSNorm": nk.RMSNorm,
}
NORMS = {info.name.removeprefix("nn."): info for info in module_db if "Norm" in info.name}
UNBATCHED = "no_batch_dim"  # InstanceNorm of torch takes a sample alone; ours takes axis 0 for samples, always


def samples(info, training, dtype=torch.float64):
    """The arguments of a constructor and the input of a call, but for what is an exception."""
    found = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
    for sample in found:
        if UNBATCHED not in sample.desc:
            yield sample.constructor_input, sample.forward_input.args[0]


def ours_of(name, theirs, built):
    module = OURS[name.rstrip("123d")](*built.args, **built.kwargs).double()
    with torch.no_grad():
        for p in theirs.parameters():
            p.uniform_(0.5, 1.5)
    module.load_state_dict(theirs.state_dict())
    return module


def results(module, x):
    """Output, gradients and state of two calls."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    found = [module(x) for _ in range(2)]
    grads = torch.autograd.grad(
        sum((y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)).sum() for y in found),
        [x, *module.parameters()],
    )
    return [*found, *grads, *module.state_dict().values()]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_every_sample_gives_torchs_numbers(name, training, layout):
    info = NORMS[name]
    count = 0
    for built, x in samples(info, training):
        if layout is torch.channels_last and x.dim() != 4:
            continue
        theirs = info.module_cls(*built.args, **built.kwargs).double().train(training)
        ours = ours_of(name, theirs, built).train(training)
        x = x.contiguous(memory_format=layout)
        got, want = results(ours, x), results(theirs, x)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
        if want[2].is_contiguous(memory_format=layout):
            assert got[2].is_contiguous(memory_format=layout), "the gradient keeps the layout of its input"
        count += 1
    assert count or layout is torch.channels_last


@pytest.mark.parametrize("name", NORMS)
def test_copies_and_printed_words(name):
    for built, x in samples(NORMS[name], True):
        module = OURS[name.rstrip("123d")](*built.args, **built.kwargs).double()
        assert repr(module)
        twin = copy.deepcopy(module)
        assert torch.equal(twin(x), module(x))
