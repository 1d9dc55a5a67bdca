"""LayerNorm for hardware with float16 only: finite and right where squares overflow."""

import pytest
import torch

import normkit as nk


@pytest.mark.parametrize("spread", [1.0, 300.0, 4000.0, 2e4])
def test_float16_stays_within_a_hundredth_of_double(spread):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(32, 96, generator=generator, dtype=torch.float64).sub(0.5).mul(2 * spread).half()
    got = nk.create("prenormalized-layernorm", 96, dtype=torch.float16)(x)
    exact = x.double()
    want = (exact - exact.mean(-1, keepdim=True)) / exact.std(-1, keepdim=True, correction=0)
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=1e-2)


def test_layernorm_in_float16_arithmetic_would_fail_there():
    x = torch.full((1, 96), 300.0, dtype=torch.float16)
    x[:, ::2] = -300.0
    assert torch.isinf(x.square().sum(-1)).all()
    assert torch.isfinite(nk.create("prenormalized-layernorm", 96, dtype=torch.float16)(x)).all()


@pytest.mark.parametrize("value", [0.0, 1.0, 6e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_constant_row_gives_the_bias(value, dtype):
    norm = nk.create("prenormalized-layernorm", 8, dtype=dtype)
    torch.nn.init.constant_(norm.bias, 0.5)
    y = norm(torch.full((2, 8), value, dtype=dtype))
    torch.testing.assert_close(y, torch.full_like(y, 0.5), rtol=0, atol=0.05)
