"""The kernel of a cache's codes: held to the formula, on every instruction set."""

import pytest
import torch

from normkit import ops
from normkit.kernels import special
from normkit.surgery.quantizing import caching


def drawn(*shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)
    return (3 * x + torch.linspace(-2, 2, shape[-1])).float()


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("shape", [(2, 3, 37, 16), (1, 8), (5, 64), (4, 1, 17, 128), (2, 33, 8), (1, 4, 1024)])
def test_chunks_are_encoded_and_decoded_as_by_the_formula(shape):
    x = drawn(*shape)
    with ops.paths.watch() as taken:
        found = caching.encode(x)
        again = caching.decode(found, x.dtype)
    assert [path.why for path in taken] == [None, None]
    with ops.paths.formula_only():
        want = caching.encode(x)
        formula = caching.decode(found, x.dtype)
        other = caching.decode(want, x.dtype)
    for name, one, all_of in zip(found._fields, found, want, strict=True):
        assert one.shape == all_of.shape, name
        assert one.dtype == all_of.dtype, name
    if shape[-2] > 1:  # of one token nothing is left but what is rounded off
        for name in ("signs", "words"):  # but for what lies within rounding of a border
            assert (getattr(found, name) != getattr(want, name)).float().mean() < 0.01
        assert (again - other).square().mean() < 1e-3 * x.square().mean()
    for name in ("scale1", "shift", "scale2")[: 2 if shape[-2] == 1 else 3]:
        torch.testing.assert_close(getattr(found, name), getattr(want, name), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(again, formula, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_chunk_is_encoded_alike_among_others_and_on_any_thread(dtype):
    x, threads = drawn(6, 40, 64).to(dtype), torch.get_num_threads()
    whole = caching.encode(x)
    try:
        torch.set_num_threads(3)
        for k, one in enumerate(x.mT.contiguous().mT):
            for name, value, all_of in zip(whole._fields, caching.encode(one), whole, strict=True):
                assert torch.equal(value, all_of[k]), name
            assert torch.equal(caching.decode(caching.encode(one), dtype), caching.decode(whole, dtype)[k]), (
                "and is decoded alike"
            )
    finally:
        torch.set_num_threads(threads)


def test_tokens_of_zeros_and_chunks_of_none():
    x = drawn(2, 5, 16)
    x[0, 2] = 0
    found = caching.encode(x)
    assert all(value.isfinite().all() for value in found)
    assert caching.decode(found, x.dtype).isfinite().all()
    assert torch.equal(caching.decode(caching.encode(torch.zeros(3, 16)), x.dtype), torch.zeros(3, 16))
    assert caching.decode(caching.encode(x[:0]), x.dtype).shape == (0, 5, 16)


def test_c_holds_codes_against_their_chunks():
    if special.library() is None:
        pytest.skip(special.absent())
    x, table, codes = torch.randn(2, 3, 16), torch.rand(256, 8), torch.zeros(2, 3, 2, dtype=torch.uint8)
    sizes, shift = torch.ones(2, 3, 1), torch.zeros(2, 1, 16)
    right = (3, 16, 1e-16)
    into, back = (x, table, codes, codes, sizes, shift, sizes), (codes, codes, table, sizes, shift, sizes, x)
    names = ("x", "directions", "signs", "words", "scale1", "shift", "scale2")
    others = ("signs", "words", "table", "scale1", "shift", "scale2", "y")
    for call, arrays, named in ((special.library().encode, into, names), (special.library().decode, back, others)):
        for at, name in enumerate(named):
            short = (*arrays[:at], arrays[at].flatten()[1:], *arrays[at + 1 :])
            with pytest.raises(ValueError, match=f"refuses {name} of {short[at].nbytes} bytes"):
                call(special.CODES.pack(*right), 2, *short)
        for plan, count in (
            ((3, 12, 0), 2), ((3, 4, 0), 2), ((3, 8192, 0), 2), ((0, 16, 0), 2), ((2**60, 16, 0), 2), (right, 0),
            (right, 2**60),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="refuses a size"):
                call(special.CODES.pack(*plan), count, *arrays)
