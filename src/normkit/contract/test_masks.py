"""Contract, masks: what a mask or order hides has no influence: on results, on gradients, on running state."""

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import METHODS, build, draw, outputs
from normkit.kinds.kind import layouts

POISON = 3e38  # finite, and so are its squares in float64; what is hidden must not be looked at, not even times 0
SHARED = {"1", "N", "B", "heads"}  # the axes of a mask along which nothing is hidden

CASES = [
    (name, key)
    for name in METHODS
    for key, layout in nk.card(name).inputs.items()
    if layout.kind in ("bool", "mask") and (layout.optional or key == "mask") and not {"...", "h"} & set(layout.axes)
]


def place(layout):
    """Where in a mask the axis is along which it hides, counted from the last; of a mask of pairs that of the keys."""
    return max(at - len(layout.axes) for at, axis in enumerate(layout.axes) if axis not in SHARED)


def hidden(batch, length):
    """Which places are hidden, (batch, length): other ones in each sample, never the first."""
    places = torch.arange(length)
    return torch.stack([(places.sub(1).remainder(3) == sample % 2) & (places > 0) for sample in range(batch)])


def spread(flags, layout, at, shape):
    """Lay flags (batch, places) along the axes of a layout that are the samples' and the one at ``at``."""
    samples, view = layout.samples or 0, [1] * len(shape)
    view[samples], view[at] = flags.shape
    return (flags.T if at + len(shape) < samples else flags).reshape(view).expand(shape)


def masked(name, key):
    """Inputs with a mask, and for every input what of it is hidden, None where nothing is."""
    card = nk.card(name)
    inputs, every = draw(name, named={"S": 5}), layouts(card)
    where = 1 + list(card.inputs).index(key)
    at, mask = place(every[where]), inputs[where]
    flags = hidden(4, mask.shape[at])
    inputs[where] = spread(flags if key.startswith("pad") else ~flags, every[where], at, mask.shape).to(mask)
    inputs = [
        None if layout.kind == "bool" and layout.optional and i != where else value
        for i, (layout, value) in enumerate(zip(every, inputs, strict=True))
    ]
    rest = [of_input(flags, layout, every[where].axes[at], value) for layout, value in zip(every, inputs, strict=True)]
    return inputs, rest


def of_input(flags, layout, axis, value):
    if not layout.floating or axis not in layout.axes:
        return None
    return spread(flags, layout, layout.axes.index(axis) - len(layout.axes), value.shape)


def like(flags, result):
    """Let flags fit a result of other numbers of heads or features."""
    places = flags[:, :1, :, :1] if flags.dim() == 4 else flags[..., :1]
    return places.expand_as(result)


def visible_run(module, inputs, rest):
    """Forward and backward of what can be seen; results are 0 where they belong to something hidden."""
    inputs = [i if i is None else i.clone().requires_grad_(i.is_floating_point()) for i in inputs]
    results = outputs(module(*inputs))
    if rest[0] is not None:  # a result's places are those of the first input, of which it may have other features
        results = [torch.where(like(rest[0], r), 0, r) if r.dim() == rest[0].dim() else r for r in results]
    torch.autograd.backward(results, [torch.cos(torch.arange(r.numel()).view(r.shape)).to(r.dtype) for r in results])
    gradients = [None if i is None else i.grad for i in inputs]
    return results, gradients, {n: p.grad for n, p in module.named_parameters()}


def both(name, key, causal):
    """A run, and one with other values in what is hidden: module, results, gradients of inputs and of parameters."""
    card = nk.card(name)
    takes = "causal" in card.signature.parameters
    if causal not in (getattr(card.entry, "forms", (False, True)) if takes else (False,)):
        pytest.skip("has no such form")
    module = build(name, **({"causal": causal} if takes else {}))
    if causal and key == "query_mask":
        pytest.skip("the causal form takes one mask, of keys and queries")
    inputs, rest = masked(name, key)
    poisoned = subject.fresh(module)
    bad = [i if r is None else torch.where(r, POISON * i.sign(), i) for i, r in zip(inputs, rest, strict=True)]
    assert any(r is not None for r in rest)
    return (module, *visible_run(module, inputs, rest)), (poisoned, *visible_run(poisoned, bad, rest)), rest


def later(value, layout, known):
    """Put other values behind the first ``known`` places of each axis of tokens or keys, where an input has one."""
    if not layout.floating:
        return value
    value = value.clone()
    for axis in {"T", "S"} & set(layout.axes):
        at = layout.axes.index(axis) - len(layout.axes)
        value.narrow(at, known, value.shape[at] - known).mul_(-2).add_(1)
    return value


CAUSAL = [
    name
    for name in METHODS
    if "causal" in nk.card(name).signature.parameters and True in getattr(nk.card(name).entry, "forms", (True,))
]


@pytest.mark.line("causal")
@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_result_comes_of_no_later_token(name):
    module, inputs = build(name, causal=True), draw(name, named={"S": 5}, optional=False)
    changed = [later(value, layout, 3) for value, layout in zip(inputs, layouts(nk.card(name), False), strict=True)]
    early = [output[..., :3, :] for output in outputs(subject.fresh(module)(*changed))]
    subject.close(early, [output[..., :3, :] for output in outputs(module(*inputs))])


FORMS = pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])


@pytest.mark.line("padding", "results")
@FORMS
@pytest.mark.parametrize("name, key", CASES)
def test_what_is_hidden_changes_no_result(name, key, causal):
    want, got, _ = both(name, key, causal)
    subject.close(got[1], want[1], rtol=0, atol=0)
    subject.close(subject.state(got[0]), subject.state(want[0]), rtol=0, atol=0)


@pytest.mark.line("padding", "gradients")
@FORMS
@pytest.mark.parametrize("name, key", CASES)
def test_what_is_hidden_gets_and_changes_no_gradient(name, key, causal):
    want, got, rest = both(name, key, causal)
    subject.close(got[2:], want[2:], rtol=0, atol=0)
    for gradient, own in zip(got[2], rest, strict=True):
        assert own is None or gradient is None or not gradient[own].any()
