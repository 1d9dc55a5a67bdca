"""Norms of images: torch's own numbers, or the equations position by position."""

import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load

D = torch.float64


def rand(*shape, seed=0):
    return torch.randn(shape, dtype=D, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(2, 7, 5), (2, 7, 4, 3), (2, 7, 2, 3, 2)])
@pytest.mark.parametrize("arguments", [(5,), (4, 0.5, 0.5, 2.0), (1, 1.0), (9, 3.0, 1.5, 0.1)])
def test_local_response_norm_is_torchs(shape, arguments):
    x = rand(*shape).requires_grad_()
    got, want = nk.LocalResponseNorm(*arguments)(x), torch.nn.LocalResponseNorm(*arguments)(x)
    torch.testing.assert_close(got, want)
    (a,), (b,) = (torch.autograd.grad(y, x, rand(*shape, seed=1)) for y in (got, want))
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("center, scale", [(3, 5), (1, 3)])
def test_divisive_norm_position_by_position(center, scale):
    module = nk.create("divisive-norm", 3, center_window=center, scale_window=scale, sigma=0.7, dtype=D)
    module.weight.data, module.bias.data = rand(3, seed=1), rand(3, seed=2)
    x = rand(2, 3, 5, 6)

    def around(x, window):
        reach, mean = window // 2, torch.empty(2, 1, 5, 6, dtype=D)
        for i in range(5):
            for j in range(6):
                part = x[:, :, max(i - reach, 0) : i + reach + 1, max(j - reach, 0) : j + reach + 1]
                mean[:, 0, i, j] = part.mean((1, 2, 3))
        return mean

    v = x - around(x, center)
    y = v / (0.7**2 + around(v**2, scale)).sqrt()
    torch.testing.assert_close(module(x), y * module.weight[:, None, None] + module.bias[:, None, None])


def test_pixelnorm_is_an_rmsnorm2d_without_a_gain():
    x = rand(2, 5, 3, 4)
    want = x / ((x**2).mean(1, keepdim=True) + 1e-8).sqrt()
    for norm in (nk.create("pixelnorm", 5), nk.create("pixel-norm", 5), nk.PixelNorm(5)):
        torch.testing.assert_close(norm(x), want)
        assert not list(norm.parameters())


@pytest.mark.parametrize("affine", [True, False])
def test_rmsnorm2d_is_timms(affine):
    let_torchvision_load()
    timm = pytest.importorskip("timm.layers")
    norm, peer = nk.RMSNorm2d(6, 1e-5, affine), timm.RmsNorm2d(6, 1e-5, affine)
    peer.load_state_dict(norm.state_dict())
    x = torch.randn(2, 6, 3, 4)
    torch.testing.assert_close(norm(x), peer(x))
    last = norm(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, peer(x))
    assert last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("bias", [True, False])
def test_layernorm1d_normalizes_axis_one_of_sequences(bias):
    norm, x = nk.LayerNorm1d(5, bias=bias, dtype=D), rand(2, 5, 7)
    norm.weight.data = rand(5, seed=1)
    want = torch.nn.functional.layer_norm(x.movedim(1, -1), (5,), norm.weight, norm.bias, 1e-6).movedim(-1, 1)
    torch.testing.assert_close(norm(x), want)
    with pytest.raises(ValueError, match="3 axes"):
        norm(rand(2, 5, 7, 7))
