"""The kernel of clients' states: held to float64 and to its formula, on every instruction set."""

import pytest
import torch

from normkit import ops
from normkit.kernels import special
from normkit.ops import sums

F64 = torch.float64


def drawn(clients, shape, dtype):
    chance = torch.Generator().manual_seed(clients)
    states = [torch.randn(shape, generator=chance, dtype=F64).to(dtype) for _ in range(clients)]
    shares = torch.rand(clients, generator=chance, dtype=F64)
    return states, (shares / shares.sum()).tolist(), torch.randn(shape, generator=chance, dtype=F64).to(dtype)


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize(
    "clients, shape", [(1, (1,)), (3, (7,)), (10, (1023,)), (4, (3, 1025)), (2, (70001,)), (11, ())]
)
def test_sums_and_distances_are_those_of_float64(dtype, clients, shape):
    states, shares, sent = drawn(clients, shape, dtype)
    want = sum(share * state.double() for share, state in zip(shares, states, strict=True))
    apart = torch.stack([(state.double() - sent.double()).square().sum() for state in states])
    with ops.paths.watch() as taken:
        found, squares = sums.weigh(states, shares, sent, measured=True)
        alone, none = sums.weigh(states, shares, sent)
    assert [path.why for path in taken] == [None, None]
    assert none is None
    assert torch.equal(found, alone)
    assert found.dtype == dtype
    torch.testing.assert_close(found, want.to(dtype), rtol=2e-7 if dtype == torch.float32 else 1e-15, atol=1e-15)
    torch.testing.assert_close(squares, apart, rtol=1e-13, atol=0)
    with ops.paths.formula_only():
        formula, others = sums.weigh(states, shares, sent, measured=True)
    torch.testing.assert_close(found, formula, rtol=2e-7 if dtype == torch.float32 else 1e-15, atol=1e-15)
    torch.testing.assert_close(squares, others, rtol=1e-13, atol=0)


def test_no_bit_depends_on_the_threads():
    states, shares, sent = drawn(5, (300_007,), torch.float32)
    found, threads = [], torch.get_num_threads()
    try:
        for number in (1, 2, 7):
            torch.set_num_threads(number)
            found.append(sums.weigh(states, shares, sent, measured=True))
    finally:
        torch.set_num_threads(threads)
    for total, squares in found[1:]:
        assert torch.equal(total, found[0][0])
        assert torch.equal(squares, found[0][1])


def test_a_long_output_is_written_past_the_cache():
    states, shares, sent = drawn(2, (6_400_003,), torch.float32)
    total, _ = sums.weigh(states, shares, sent)
    torch.testing.assert_close(total, (shares[0] * states[0].double() + shares[1] * states[1].double()).float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_other_types_go_by_the_formula(dtype):
    states, shares, sent = drawn(3, (130,), F64)
    states, sent = [(8 * state).to(dtype) for state in states], sent.to(dtype)
    with ops.paths.watch() as taken:
        found, squares = sums.weigh(states, shares, sent, measured=True)
    assert taken[0].why is not None
    want = sum(share * state.double() for share, state in zip(shares, states, strict=True))
    assert torch.equal(found, sums.in_type(want, sent))
    assert squares[1] == (states[1].double() - sent.double()).square().sum()


def test_states_as_they_lie_in_memory():
    states, shares, sent = drawn(3, (40, 6), torch.float32)
    turned = [state.t().contiguous().t() for state in states]
    want = sums.weigh(states, shares, sent, measured=True)
    found = sums.weigh(turned, shares, sent.t().contiguous().t().requires_grad_(), measured=True)
    assert torch.equal(found[0], want[0])
    assert torch.equal(found[1], want[1])
    assert not found[0].requires_grad
    empty, none = sums.weigh([torch.empty(0)] * 2, [0.5, 0.5], torch.empty(0), measured=True)
    assert empty.shape == (0,)
    assert none.tolist() == [0, 0]


def test_numbers_that_are_not_finite_are_reported_by_the_distance():
    states, shares, sent = drawn(3, (2000,), torch.float32)
    states[1][1500], states[2][3] = torch.nan, torch.inf
    _, squares = sums.weigh(states, shares, sent, measured=True)
    assert squares.isfinite().tolist() == [True, False, False]


def test_c_holds_a_table_of_states_against_their_length():
    if special.library() is None:
        pytest.skip(special.absent())
    x, y, total = torch.ones(6), torch.ones(6), torch.empty(6)
    table = torch.tensor([[state.data_ptr(), state.nbytes] for state in (x, y)])
    shares, squares = torch.zeros(2, dtype=F64), torch.zeros(2, dtype=F64)
    short, none = table.clone(), table.clone()
    short[1, 1] -= 4
    none[0, 0] = 0
    for plan, count, arrays, word in (
        ((1, 2), 5, (table, shares, x, total, squares), "table of 32 bytes"),
        ((1, 2), 6, (table[:1], shares, x, total, squares), "table of 16 bytes"),
        ((1, 2), 6, (short, shares, x, total, squares), "table of 32 bytes"),
        ((1, 2), 6, (none, shares, x, total, squares), "table of 32 bytes"),
        ((1, 2), 6, (table, shares[:1], x, total, squares), "shares of 8 bytes"),
        ((1, 2), 6, (table, shares, x[:3], total, squares), "sent of 12 bytes"),
        ((1, 2), 6, (table, shares, x, total[:3], squares), "total of 12 bytes"),
        ((1, 2), 6, (table, shares, x, total, squares[:1]), "squares of 8 bytes"),
        ((3, 2), 6, (table, shares, x, total, squares), "an element type"),
        ((1, 0), 6, (table, shares, x, total, squares), "a size"),
        ((1, 2), 0, (table, shares, x, total, squares), "a size"),
        ((1, 2**61), 2, (table, shares, x, total, squares), "a size"),
        ((1, 2), 2**62, (table, shares, x, total, squares), "a size"),
    ):
        with pytest.raises(ValueError, match=f"refuses {word}"):
            special.library().states(special.STATES.pack(*plan), count, *arrays)
