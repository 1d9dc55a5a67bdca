"""Sinkhorn's steps: the kernels held to the formula, on every instruction set and by Triton's interpreter."""

import math

import pytest
import torch

from normkit import ops
from normkit.kernels import cuda, special
from normkit.ops import paths
from place import DEVICE, KERNEL, kernels

F64 = torch.float64
triton = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


def drawn(*shape, spread=2.0, seed=0):
    return spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def both(scores, *about):
    """The matrices, and the gradient by the scores."""
    leaf = scores.detach().clone().requires_grad_()
    m = ops.sinkhorn(leaf, *about)
    sent = torch.linspace(-1, 2, m.numel(), dtype=F64).sin().view(m.shape).to(m)
    return m.detach(), torch.autograd.grad(m, leaf, sent)[0]


def by_kernel(scores, *about):
    with paths.watch() as taken:
        found = both(scores, *about)
    assert [path.why for path in taken] == [None, None]
    return found


def by_formula(scores, *about):
    with paths.formula_only():
        return both(scores, *about)


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("rounds", [1, 2, 20])
@pytest.mark.parametrize("shape", [(3, 1, 1), (5, 2, 2), (2, 19, 4, 4), (11, 5, 5), (3, 16, 16), (64, 64)], ids=str)
def test_the_kernel_is_its_formula(shape, rounds, eps):
    scores = drawn(*shape)
    for one, want in zip(by_kernel(scores, rounds, eps), by_formula(scores, rounds, eps), strict=True):
        torch.testing.assert_close(one, want, rtol=1e-12, atol=1e-12)
    single = scores.float()
    for one, want in zip(by_kernel(single, rounds, eps), by_formula(single.double(), rounds, eps), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), want, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("widest")
def test_scores_far_apart_and_an_offset():
    for scores in (drawn(9, 4, 4, spread=300.0), drawn(9, 4, 4) + 1e6, torch.full((2, 4, 4), -1e30, dtype=F64)):
        for one, want in zip(by_kernel(scores), by_formula(scores), strict=True):
            torch.testing.assert_close(one, want, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_score_spoils_its_own_matrix_alone(bad):
    scores = drawn(37, 4, 4)
    scores[5, 1, 2] = bad
    want = torch.arange(37) != 5
    for found in by_kernel(scores.float()):
        assert torch.equal(found.isfinite().all(-1).all(-1), want)
        assert torch.equal(found.isfinite().any(-1).any(-1), want)


@pytest.mark.usefixtures("widest")
def test_a_matrix_has_the_same_bits_among_others_and_on_any_threads():
    scores, threads = drawn(3001, 4, 4).float(), torch.get_num_threads()
    whole = by_kernel(scores)[0]
    try:
        torch.set_num_threads(3)
        assert torch.equal(by_kernel(scores)[0], whole)
    finally:
        torch.set_num_threads(threads)
    for at in (0, 7, 3000):
        assert torch.equal(by_kernel(scores[at])[0], whole[at])
        with torch.no_grad():
            assert torch.equal(ops.sinkhorn(scores[at]), whole[at])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(kind):
    scores = drawn(8, 4, 4).to(kind)
    want = by_formula(scores.double())
    for found in (by_kernel(scores), by_formula(scores)):
        assert {one.dtype for one in found} == {kind}
        off = (found[0].double() - want[0]).abs()
        assert (off <= 0.51 * torch.finfo(kind).eps * want[0].abs() + 1e-6).all()


def test_derivatives_of_first_and_second_order():
    scores = drawn(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: ops.sinkhorn(s, 4, 1e-2), scores)
    assert torch.autograd.gradgradcheck(lambda s: ops.sinkhorn(s, 3, 1e-2), scores)


def test_a_batch_of_gradients_is_that_of_each():
    x, sent = drawn(2, 3, 3).requires_grad_(), drawn(4, 2, 3, 3, seed=1)
    y = ops.sinkhorn(x)
    (together,) = torch.autograd.grad(y, x, sent, is_grads_batched=True, retain_graph=True)
    for one, own in zip(sent, together, strict=True):
        torch.testing.assert_close(torch.autograd.grad(y, x, one, retain_graph=True)[0], own)


def test_layout_and_what_the_kernel_does_not_take():
    scores = drawn(4, 4, 6).permute(2, 1, 0)
    assert not scores.is_contiguous()
    torch.testing.assert_close(by_kernel(scores), by_formula(scores))
    want = ops.sinkhorn(scores)
    torch.testing.assert_close(torch.func.vmap(ops.sinkhorn)(scores), want)
    torch.testing.assert_close(torch.compile(ops.sinkhorn, backend="eager", fullgraph=True)(scores), want)
    with paths.watch() as taken:
        ops.sinkhorn(drawn(65, 65))
        ops.sinkhorn(drawn(2, 2), 1025)
        assert ops.sinkhorn(scores[:0]).shape == (0, 4, 4)
    assert [path.by for path in taken] == ["formula"] * 3


@pytest.mark.parametrize(
    "scores, arguments, word",
    [
        (torch.ones(3), {}, r"scores must be \(\.\.\., n, n\)"),
        (torch.ones(2, 3), {}, r"their shape is \(2, 3\)"),
        (torch.ones(3, 3), {"iterations": 0}, "iterations must be"),
        (torch.ones(3, 3), {"eps": -1.0}, "eps"),
        (torch.ones(3, 3, dtype=torch.int64), {}, "int64"),
    ],
)
def test_bad_input_is_named(scores, arguments, word):
    with pytest.raises((ValueError, TypeError), match=word):
        ops.sinkhorn(scores, **arguments)


def test_c_holds_a_record_against_itself():
    if special.library() is None:
        pytest.skip(special.absent())
    x, short = torch.ones(6, 4, 4), torch.ones(5)
    right = (1, 4, 20, 1e-6)
    for plan, count, arrays, word in (
        (right, 6, (short, x), "x of 20 bytes"),
        (right, 6, (x, short), "y of 20 bytes"),
        (right, 7, (x, x), "x of 384 bytes"),
        ((2, 4, 20, 0), 6, (x, x), "an element type"),
        ((1, 0, 20, 0), 6, (x, x), "a size"),
        ((1, 65, 20, 0), 6, (x, x), "a size"),
        ((1, 4, 0, 0), 6, (x, x), "a size"),
        ((1, 4, 1025, 0), 6, (x, x), "a size"),
        (right, 0, (x, x), "a size"),
        (right, 2**60, (x, x), "a size"),
    ):
        with pytest.raises(ValueError, match=f"refuses {word}"):
            special.library().sinkhorn(special.SINKHORN.pack(*plan), count, *arrays)
    for at, word in enumerate(("x", "grad", "dx")):
        arrays = [x, x, x]
        arrays[at] = short
        with pytest.raises(ValueError, match=f"refuses {word} of 20 bytes"):
            special.library().sinkhorn_backward(special.SINKHORN.pack(*right), 6, *arrays)


@triton
@pytest.mark.usefixtures("within")
@pytest.mark.parametrize("eps", [0.0, 1e-6])
@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("shape", [(1, 1, 1), (35, 4, 4), (2, 3, 5, 5), (3, 16, 16), (4, 4)], ids=str)
def test_triton_s_kernel_is_the_formula(shape, rounds, eps):
    scores = drawn(*shape).float().to(DEVICE)
    with kernels(), paths.watch() as taken:
        found = both(scores, rounds, eps)
    assert {path.by for path in taken} == {KERNEL}
    for one, want in zip(found, by_formula(scores.double(), rounds, eps), strict=True):
        torch.testing.assert_close(one.double(), want, rtol=1e-5, atol=1e-6)


@triton
def test_triton_s_kernel_takes_small_matrices_of_float32():
    with kernels(), paths.watch() as taken:
        ops.sinkhorn(drawn(2, 17, 17).float().to(DEVICE))
        ops.sinkhorn(drawn(2, 4, 4).to(DEVICE))
        ops.sinkhorn(drawn(2, 4, 4).bfloat16().to(DEVICE))
    assert [path.by for path in taken] == ["formula", "formula", KERNEL]


@triton
def test_a_trial_finds_nothing_against_the_kernel_of_triton(monkeypatch):
    monkeypatch.setenv("NORMKIT_TRIAL", "always")
    with kernels(), paths.watch() as taken:
        both(drawn(40, 4, 4).float().to(DEVICE))
    assert {path.by for path in taken} == {KERNEL}
