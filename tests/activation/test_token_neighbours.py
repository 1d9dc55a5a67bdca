"""Norms of vectors: the numbers of transformers and timm, or the equations in float64."""

import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load

D = torch.float64


def rand(*shape, seed=0, dtype=D):
    return torch.randn(shape, dtype=D, generator=torch.Generator().manual_seed(seed)).to(dtype)


def transformers(model, name):
    """A class of transformers, by the model that it is of."""
    let_torchvision_load()
    package = pytest.importorskip("transformers")
    return getattr(__import__(f"{package.__name__}.models.{model}.modeling_{model}", fromlist=[name]), name)


def alike(norm, peer):
    for index, (own, theirs) in enumerate(zip(norm.parameters(), peer.parameters(), strict=True)):
        own.data = 1 + 0.3 * rand(*own.shape, seed=index, dtype=own.dtype)
        theirs.data = own.data.clone()
    return norm, peer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("group_size", [12, 4])
@pytest.mark.parametrize("gated", [True, False])
def test_gated_rmsnorm_is_mamba2s(dtype, group_size, gated):
    peer = transformers("mamba2", "MambaRMSNormGated")(12, group_size, eps=1e-5).to(dtype)
    norm, peer = alike(nk.MambaRMSNormGated(12, group_size, eps=1e-5, dtype=dtype), peer)
    x, gate = 3 * rand(2, 5, 12, dtype=dtype), rand(2, 5, 12, seed=1, dtype=dtype)
    given = (x, gate) if gated else (x,)
    torch.testing.assert_close(norm(*given), peer(*given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gated_rmsnorm_is_qwen3_nexts(dtype):
    peer = transformers("qwen3_next", "Qwen3NextRMSNormGated")(12, 1e-5).to(dtype)
    norm, peer = alike(nk.Qwen3NextRMSNormGated(12, 1e-5, dtype=dtype), peer)
    x, gate = 3 * rand(2, 5, 12, dtype=dtype), rand(2, 5, 12, seed=1, dtype=dtype)
    torch.testing.assert_close(norm(x, gate), peer(x, gate))
    assert norm.arguments["eps"] == 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("before", [True, False])
def test_gated_rmsnorm_is_falcon_h1s(dtype, before):
    make = transformers("falcon_h1", "FalconH1RMSNormGated")
    peer = make(12, eps=1e-5, n_groups=3, norm_before_gate=before).to(dtype)
    mine = nk.GatedRMSNorm(12, group_size=4, eps=1e-5, norm_before_gate=before, cast="late", dtype=dtype)
    norm, peer = alike(mine, peer)
    x, gate = 3 * rand(2, 5, 12, dtype=dtype), rand(2, 5, 12, seed=1, dtype=dtype)
    torch.testing.assert_close(norm(x, gate), peer(x, gate))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gated_rmsnorm_by_the_name_of_the_fused_one_has_its_defaults(dtype):
    """Of flash-linear-attention, restated: its eps is 1e-5, and half precision is rounded once, behind the gate."""
    norm = nk.create("FusedRMSNormGated", 64).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, 64))
    x, gate = (1e-2 * rand(5, 64)).to(dtype), rand(5, 64, seed=1).to(dtype)
    z, g = x.float(), gate.float()
    want = z / (z.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight.float() * g * torch.sigmoid(g)
    torch.testing.assert_close(norm(x, gate), want.to(dtype), rtol=1e-5 if dtype is torch.float32 else 1e-3, atol=1e-6)


def test_gated_rmsnorm_with_a_sigmoid():
    norm = nk.create("gated-rmsnorm", 6, norm_before_gate=True, activation="sigmoid", affine=False, dtype=D)
    x, gate = rand(4, 6), rand(4, 6, seed=1)
    torch.testing.assert_close(norm(x, gate), x / ((x**2).mean(-1, keepdim=True) + 1e-6).sqrt() * gate.sigmoid())


@pytest.mark.parametrize("center", [False, True])
def test_grouped_norms_are_torchs_group_by_group(center):
    name = "grouped-layernorm" if center else "grouped-rmsnorm"
    norm, x = nk.create(name, 12, group_size=4, eps=1e-5, bias=True, dtype=D), rand(3, 5, 12)
    norm.weight.data, norm.bias.data = rand(12, seed=1), rand(12, seed=2)
    plain = torch.nn.functional.layer_norm if center else torch.nn.functional.rms_norm
    parts = torch.cat([plain(part, (4,), eps=1e-5) for part in x.split(4, -1)], -1)
    torch.testing.assert_close(norm(x), parts * norm.weight + norm.bias)


@pytest.mark.parametrize("affine", [True, False])
def test_simplenorm_is_timms(affine):
    let_torchvision_load()
    timm = pytest.importorskip("timm.layers")
    x = torch.randn(2, 6, 4, 6)
    norm, peer = alike(nk.SimpleNorm(6, 1e-5, affine), timm.SimpleNorm(6, 1e-5, affine))
    torch.testing.assert_close(norm(x), peer(x))
    norm, peer = alike(nk.SimpleNorm2d(6, 1e-5, affine), timm.SimpleNorm2d(6, 1e-5, affine))
    torch.testing.assert_close(norm(x), peer(x))


@pytest.mark.parametrize("center", ["mean", "last"])
@pytest.mark.parametrize("shape", [(3, 7, 4), (3, 2, 7, 4)])
def test_revin_normalizes_a_past_and_brings_a_forecast_back(center, shape):
    module, x = nk.create("revin", 4, center=center, dtype=D), (5 + 3 * rand(*shape)).requires_grad_()
    module.weight.data, module.bias.data = 1 + rand(4, seed=1), rand(4, seed=2)
    time = tuple(range(1, x.dim() - 1))
    s = (x.var(time, correction=0, keepdim=True) + 1e-5).sqrt().detach()
    last = x.flatten(1, -2)[:, -1].reshape(3, *[1] * len(time), 4)
    middle = x.mean(time, keepdim=True) if center == "mean" else last
    y, scale = module.normalize(x)
    torch.testing.assert_close(y, (x - middle) / s * module.weight + module.bias)
    forecast = rand(3, *[1] * (len(time) - 1), 9, 4, seed=3)
    want = (forecast - module.bias) / (module.weight + 1e-10) * s + middle
    torch.testing.assert_close(module.denormalize(forecast, scale), want)
    torch.testing.assert_close(
        module.denormalize(forecast.expand(2, *forecast.shape), scale), want.expand(2, *want.shape)
    )
    torch.testing.assert_close(module.denormalize(y, scale), x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (module.weight / s).expand_as(x))


def test_cosine_norm_is_a_cosine_or_a_correlation():
    module, x = nk.create("cosine-norm", 6, 3, dtype=D), rand(4, 6)
    want = torch.cosine_similarity(x[:, None], module.weight[None], dim=-1)
    torch.testing.assert_close(module(x), want)
    module.center = True
    both = torch.corrcoef(torch.cat([x, module.weight]))
    torch.testing.assert_close(module(x), both[:4, 4:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_an_rmsnorm_without_eps_is_torchs(dtype):
    x = rand(4, 8, dtype=dtype) * torch.tensor([1, 1e-2, 1e-4, 0], dtype=dtype)[:, None]
    norm, peer = nk.RMSNorm(8, eps=None, dtype=dtype), torch.nn.RMSNorm(8, dtype=dtype)
    torch.testing.assert_close(norm(x), peer(x))
    assert norm.eps is None
    assert "eps=None" in repr(norm)
    torch.testing.assert_close(norm.add_norm(x, x)[0], peer(2 * x))
    norm.eps = 0.5
    torch.testing.assert_close(norm(x), nk.RMSNorm(8, eps=0.5, dtype=dtype)(x))
