"""Contract, batches: without batch statistics a row's bits depend on that row alone.

Not on how many others share the batch, nor on which or where, nor on how many threads work on it.
"""

import functools

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import FLOATING, build, draw, outputs
from normkit.contract.values import over
from normkit.kinds.kind import layouts
from normkit.ops import paths
from normkit.threads import threads

ROWS = {8: 4200, 64: 70}  # of a batch, by width: many short rows, and more of 64 than a batch that is cut from them
CUTS = ((0, 1), (5, 1), (5, 3), (6, 64), (1, 20))  # where a smaller batch begins, and its rows
MANY = 1200  # samples of 64 features: more entries than torch leaves to one thread


BY_ROW = [name for name in FLOATING if nk.card(name).by_row]


def drawn(name, width, batch):
    few = batch if "..." in nk.card(name).shape.axes else min(batch, 300)  # an image is many rows by itself
    inputs = draw(name, width, few, dtype=torch.float32)
    return inputs, [pieces(layout, value, few) for layout, value in zip(layouts(nk.card(name)), inputs, strict=True)]


def pieces(layout, value, batch):
    """The axis along which an input has an entry a sample, or None."""
    axis = layout.samples
    return axis if axis is not None and value.shape[axis] == batch else None


def cut(values, axes, begin, rows):
    return [v if a is None else v.narrow(a, begin, rows) for v, a in zip(values, axes, strict=True)]


def waves(results):
    """A gradient for each result, other numbers in every place."""
    return [torch.sin(torch.arange(r.numel(), dtype=torch.float64)).to(r.dtype).view(r.shape) for r in results]


def run(module, inputs, sent=None):
    """Results that have a gradient, the gradients of inputs and of parameters."""
    torch.manual_seed(0)  # for what it draws
    inputs = [i.detach().requires_grad_(i.is_floating_point()) for i in inputs]
    results = [r for r in outputs(subject.fresh(module)(*inputs)) if r.requires_grad]
    torch.autograd.backward(results, waves(results) if sent is None else sent)
    return results, [i.grad for i in inputs]


@pytest.mark.line("batches", "rows")
@pytest.mark.parametrize("name", BY_ROW)
@over(width=list(ROWS))
def test_a_row_has_the_same_bits_in_any_batch(name, width):
    inputs, axes = drawn(name, width, ROWS[width])
    module, samples = build(name, width, dtype=torch.float32), nk.card(name).shape.samples
    results, gradients = run(module, inputs)
    sent = waves(results)
    batch = inputs[0].shape[samples]
    shared = [samples if r.dim() > samples and r.shape[samples] == batch else None for r in results]
    for begin, rows in CUTS:
        got = run(module, cut(inputs, axes, begin, rows), cut(sent, shared, begin, rows))
        for a, b, axis in zip(got[0], cut(results, shared, begin, rows), shared, strict=True):
            assert axis is None or torch.equal(a, b)
        for axis, a, b in zip(axes, got[1], gradients, strict=True):
            assert axis is None or b is None or torch.equal(a, b.narrow(axis, begin, rows))


@functools.lru_cache(maxsize=1)
def with_threads(name):
    """What one thread and two give: what has rows, and the gradients of parameters and of inputs without samples."""
    inputs, axes = drawn(name, 64, MANY)
    axes = [axis for axis, value in zip(axes, inputs, strict=True) if value.is_floating_point()]
    module, given = build(name, 64, dtype=torch.float32), []
    for count in (1, 2):
        with threads(count):
            results, gradients, gains = subject.run(subject.fresh(module), inputs)
        own = [g for g, axis in zip(gradients, axes, strict=True) if axis is not None]
        others = [g for g, axis in zip(gradients, axes, strict=True) if axis is None]
        given.append({"threads": (results, own), "gains": (gains, others)})
    return given


@pytest.mark.line("batches")
@pytest.mark.parametrize("name", BY_ROW)
@over(of=["threads", "gains"])
def test_two_threads_give_the_bits_of_one(name, of):
    """Of the rows as of what the gains learn from."""
    one, two = with_threads(name)
    subject.close(two[of], one[of], rtol=0, atol=0)


@pytest.mark.line("batches", "order")
@pytest.mark.parametrize("name", BY_ROW)
def test_rows_with_gaps_between_them_have_the_same_bits(name):
    inputs, _ = drawn(name, 64, 70)
    module = build(name, 64, dtype=torch.float32)
    gapped = [torch.cat([i, i], dim=-1)[..., : i.shape[-1]] if i.is_floating_point() else i for i in inputs]
    with paths.watch() as taken:
        got = run(module, gapped)
    if any(path.why for path in taken) or not taken:
        pytest.skip("it runs by a formula, whose order of sums is torch's")
    want = run(module, inputs)
    subject.close(got, want, rtol=0, atol=0)


@pytest.mark.skipif("rmsnorm" not in BY_ROW or "gdn" not in BY_ROW, reason="they are not among the methods asked for")
def test_the_card_says_whether_a_row_has_the_same_bits_in_any_batch():
    flags = [nk.card(name).batch_invariant for name in ("rmsnorm", "groupnorm", "gdn", "batchnorm", "gnp", "polynorm")]
    assert flags == [True, True, False, False, False, True]
