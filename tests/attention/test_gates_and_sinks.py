"""Gated attention and attention sinks at the ends of their range, and what they refuse."""

import pytest
import torch

import normkit as nk


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def test_closed_gates_give_zeros_and_finite_gradients():
    core = nk.create("gated-attention", 4, heads=2)
    q = drawn(1, 2, 3, 4).requires_grad_()
    gate = torch.full((1, 2, 3, 4), -800.0, dtype=torch.float64, requires_grad=True)
    y = core(q, q, q, gate)
    y.sum().backward()
    assert torch.equal(y, torch.zeros_like(y))
    assert torch.equal(q.grad, torch.zeros_like(q))
    assert torch.equal(gate.grad, torch.zeros_like(gate))


@pytest.mark.parametrize("shape", [(1, 2, 3, 2), (1, 1, 3, 4), (1, 2, 3)])
def test_a_gate_of_another_shape_is_named(shape):
    q = drawn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="GatedAttention: gate must have shape"):
        nk.create("gated-attention", 4, heads=2)(q, q, q, torch.zeros(shape, dtype=torch.float64))


def test_a_sink_at_minus_infinity_is_plain_softmax_and_a_blind_query_stays_zero():
    core = nk.create("attention-sinks", 4, heads=2).double()
    q, mask = drawn(1, 2, 3, 4).requires_grad_(), torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False
    with torch.no_grad():
        core.sink.fill_(-torch.inf)
    y = core(q, q, q, mask)
    torch.testing.assert_close(y, nk.create("softmax", 4, heads=2)(q, q, q, mask))
    assert torch.equal(y[:, :, 1], torch.zeros(1, 2, 4, dtype=torch.float64))
    y.sum().backward()
    assert q.grad.isfinite().all()


def test_a_large_sink_takes_all_weight_without_overflow():
    core = nk.create("attention-sinks", 4, heads=2).double()
    with torch.no_grad():
        core.sink.copy_(torch.tensor([2000.0, 0.0]))
    q = drawn(1, 2, 3, 4)
    y = core(q, q, q)
    assert torch.equal(y[:, 0], torch.zeros_like(y[:, 0]))
    assert y[:, 1].abs().min() > 0


def test_scores_take_another_factor_and_a_head_s_result_a_norm_before_its_gate():
    q, k, v, gate = (torch.randn(1, 2, 5, 4, dtype=torch.float64) for _ in range(4))
    s = 0.7 * q @ k.mT
    y = torch.softmax(s, -1) @ v
    core = nk.create("gated-attention", 4, heads=2, scale=0.7, norm=True, eps=0.1)
    want = y / (y.square().mean(-1, keepdim=True) + 0.1).sqrt() * gate.sigmoid()
    torch.testing.assert_close(core(q, k, v, gate), want)
    torch.testing.assert_close(nk.create("gated-attention", 4, heads=2, scale=0.7)(q, k, v, gate), y * gate.sigmoid())
    sinks = nk.create("attention-sinks", 4, heads=2, scale=0.7).double()
    shares = torch.cat([s, torch.zeros_like(s[..., :1])], -1).softmax(-1)[..., :-1]
    torch.testing.assert_close(sinks(q, k, v), shares @ v)
    for name in ("gated-attention", "attention-sinks"):
        with pytest.raises(ValueError, match="scale must lie in"):
            nk.create(name, 4, heads=2, scale=0.0)
