"""Contract, inputs: ranks, sizes, layouts, extreme values."""

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import FLOATING, METHODS, build, draw, outputs
from normkit.contract.values import over

LEADING = [(), (3,), (2, 3), (2, 1, 3), (1, 1, 1, 2)]
TRAILING = [(), (5,), (3, 5), (1, 3, 2)]


def ranks(name):
    layout = nk.card(name).shape
    if "..." in layout.axes:
        return [{"leading": leading} for leading in LEADING]
    if {"*", "+"} & set(layout.axes):
        return [{"trailing": trailing} for trailing in TRAILING[1 if "+" in layout.axes else 0 :]]
    return [{}]


@pytest.mark.parametrize("name", METHODS)
def test_every_rank_passes_forward_and_backward(name):
    for shape in ranks(name):
        inputs = draw(name, **shape)
        _, gradients, _ = subject.run(build(name), inputs)
        floats = [i for i in inputs if i.is_floating_point()]
        assert [g.shape for g in gradients if g is not None] == [
            i.shape for i, g in zip(floats, gradients, strict=True) if g is not None
        ]


@pytest.mark.parametrize("name", METHODS)
def test_strided_inputs_give_the_same_numbers(name):
    module, inputs = build(name), draw(name)
    strided = [torch.stack([i, i], dim=-1)[..., 0] if i.is_floating_point() else i for i in inputs]
    for a, b in zip(outputs(subject.fresh(module)(*strided)), outputs(module(*inputs)), strict=True):
        subject.close(a, b)


@pytest.mark.parametrize("name", METHODS)
def test_channels_last_is_kept_and_right(name):
    inputs = draw(name)
    if inputs[0].dim() != 4 or nk.card(name).shape.axes[:2] != ("N", "C"):
        pytest.skip("no channels-first layout")
    module = build(name)
    last = [inputs[0].to(memory_format=torch.channels_last), *inputs[1:]]
    got, want = subject.run(subject.fresh(module), last), subject.run(module, inputs)
    subject.close(got[0], want[0])
    subject.close(got[1], want[1])
    for output in got[0]:
        if output.shape == inputs[0].shape:
            assert output.is_contiguous(memory_format=torch.channels_last)


VALUES = {
    "zeros": lambda x: torch.zeros_like(x),
    "ones": lambda x: torch.ones_like(x),
    "tiny": lambda x: x * 1e-20,
    "huge": lambda x: x.sign() * 6e4,
    "offset": lambda x: x + 1e4,
}


@pytest.mark.line("extremes")
@pytest.mark.parametrize("name", FLOATING)
@over(kind=VALUES, dtype=[torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extreme_values_give_no_nan(name, kind, dtype):
    module = build(name, dtype=dtype)
    inputs = draw(name, dtype=dtype)
    first = subject.first_floating(inputs)
    inputs[first] = VALUES[kind](inputs[first]).to(dtype)
    given, gradients, _ = subject.run(module, inputs)
    for value in [*given, gradients[0]]:
        assert not torch.isnan(value).any()


@pytest.mark.line("empty")
@pytest.mark.parametrize("name", [name for name in METHODS if nk.card(name).held_to("empty")])
def test_an_empty_batch_passes(name):
    module = build(name, train=False)
    inputs = draw(name, batch=0)
    given, gradients, _ = subject.run(module, inputs)
    assert all(o.numel() == 0 for o in given if o.dim())
    first = [i for i in inputs if i.is_floating_point()][:1]
    assert [g.shape for g in gradients[:1]] == [i.shape for i in first]


@pytest.mark.line("one")
@pytest.mark.parametrize("name", METHODS)
def test_one_sample_and_one_position(name):
    shapes = ranks(name)
    for shape in [{"leading": (1,)}, {"trailing": (1, 1)}] if len(shapes) > 1 else [{}]:
        module = build(name, train=False)
        given, _, _ = subject.run(module, draw(name, batch=1, **shape))
        assert all(torch.isfinite(o).all() for o in given)
