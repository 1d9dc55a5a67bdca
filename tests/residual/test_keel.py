"""Keel's constant, its two norms in a model, and the numbers that embedding skips start from."""

import pytest
import torch
from torch import nn

import normkit as nk


def test_the_constant_counts_sublayers_or_is_the_given_one():
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    made = nk.create("keel", dim=4, depth=5, attention=nn.Identity(), feedforward=nn.Identity()).double()
    same = nk.create("keel", dim=4, alpha=10, attention=nn.Identity(), feedforward=nn.Identity()).double()
    norm = nn.LayerNorm(4).double()
    want = norm(10 * x + norm(x))
    want = norm(10 * want + norm(want))
    torch.testing.assert_close(made(x), want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(same(x), want, rtol=1e-12, atol=1e-12)


def test_a_decoder_of_it_has_both_norms_and_no_final_one():
    model = nk.Decoder(vocab=11, dim=8, depth=2, heads=2, hidden=12, placement="keel")
    names = {name for name, _ in model.named_parameters()}
    for part in ("attention_norm", "attention_sum_norm", "feedforward_norm", "feedforward_sum_norm"):
        assert any(f".{part}.weight" in name for name in names)
    assert not any("final" in name for name in names)
    model(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_first_and_the_last_layer_start_an_embedding_skip_at_the_published_numbers():
    first, last = (nk.create("embedding-skip", layer=layer, depth=4) for layer in (0, 3))
    torch.testing.assert_close(first.residual_scale.item(), 1.15, rtol=1e-6, atol=0)
    torch.testing.assert_close(last.residual_scale.item(), 1.05, rtol=1e-6, atol=0)
    torch.testing.assert_close(first.embedding_scale.item(), 0.20, rtol=1e-6, atol=0)
    torch.testing.assert_close(last.embedding_scale.item(), 0.05, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("name", "second"), [("embedding-skip", "embedding"), ("value-residual", "first")])
def test_a_second_input_of_another_shape_is_named(name, second):
    with pytest.raises(ValueError, match=f"{second} must have shape"):
        nk.create(name)(torch.zeros(2, 3, 4), torch.zeros(2, 3, 5))
