"""Norms with a gain from elsewhere: the equations of diffusers and of the papers in float64."""

import pytest
import torch
from torch.nn import functional as F

import normkit as nk

D = torch.float64


def rand(*shape, seed=0):
    return torch.randn(shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def moved(module):
    for index, parameter in enumerate(module.parameters()):
        parameter.data = parameter.data + 0.3 * rand(*parameter.shape, seed=index)
    return module


@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize("shared", [False, True])
def test_conditional_norm_class_by_class(norm, shared):
    module = moved(nk.create("conditional-batchnorm", 3, num_classes=4, norm=norm, shared=shared, dtype=D))
    x, labels = rand(5, 3, 2, 4), torch.tensor([1, 0, 3, 1, 1])
    n = F.batch_norm(x, None, None, training=True) if norm == "batch" else F.instance_norm(x)
    if shared:
        n = n * module.shared_weight[:, None, None] + module.shared_bias[:, None, None]
    want = torch.stack(
        [n[i] * module.weight[k][:, None, None] + module.bias[k][:, None, None] for i, k in enumerate(labels)]
    )
    torch.testing.assert_close(module(x, labels), want)


def test_adaln_zero_gives_what_a_block_needs():
    x, condition = rand(2, 5, 4), rand(2, 6, seed=1)
    block = moved(nk.create("adaln-zero", 4, condition_features=6, dtype=D))
    made = F.silu(condition) @ block.modulation.weight.T + block.modulation.bias
    shift, scale, gate, *rest = made.chunk(6, dim=1)
    y = F.layer_norm(x, (4,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    torch.testing.assert_close(block(x, condition), (y, gate, *rest))
    single = moved(nk.AdaLayerNormZeroSingle(4, condition_features=6, dtype=D))
    shift, scale, gate = (F.silu(condition) @ single.modulation.weight.T + single.modulation.bias).chunk(3, dim=1)
    y = F.layer_norm(x, (4,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    torch.testing.assert_close(single(x, condition), (y, gate))


def test_adaptive_layernorm_of_diffusers():
    x, condition = rand(2, 5, 4), rand(2, 6, seed=1)
    module = moved(nk.AdaLayerNormContinuous(4, 6, dtype=D))
    scale, shift = (F.silu(condition) @ module.modulation.weight.T + module.modulation.bias).chunk(2, dim=1)
    h = F.layer_norm(x, (4,), module.weight, module.bias, 1e-5)
    torch.testing.assert_close(module(x, condition), h * (1 + scale)[:, None] + shift[:, None])


def test_adaptive_layernorm_starts_as_a_plain_one():
    x, condition = rand(2, 5, 4), rand(2, 6, seed=1)
    for module in (nk.create("adaptive-layernorm", 4, condition_features=6, dtype=D), nk.AdaLayerNormContinuous(4, 6)):
        torch.testing.assert_close(module.to(D)(x, condition), F.layer_norm(x, (4,), eps=module.rule.eps))


def test_adaln_zero_starts_with_closed_gates():
    _, *rest = nk.create("adaln-zero", 4)(torch.randn(2, 3, 4), torch.randn(2, 4))
    assert not any(part.any() for part in rest)


@pytest.mark.parametrize("name", ["adaptive-groupnorm", "AdaGroupNorm"])
def test_adaptive_groupnorm_of_the_authors_and_of_diffusers(name):
    module = moved(nk.create(name, 6, condition_features=5, num_groups=3, dtype=D))
    x, condition = rand(2, 6, 3, 4), rand(2, 5, seed=1)
    h = F.group_norm(x, 3, module.weight, module.bias)
    given = F.silu(condition) if name == "adaptive-groupnorm" else condition
    scale, shift = F.linear(given, module.modulation.weight, module.modulation.bias)[:, :, None, None].chunk(2, dim=1)
    torch.testing.assert_close(module(x, condition), h * (1 + scale) + shift)
    assert (module.weight is None) == (module.bias is None) == (name == "AdaGroupNorm")
    with pytest.raises(ValueError, match="num_groups=4 does not divide num_features=6"):
        nk.create(name, 6, condition_features=5, num_groups=4)


def test_film_scales_and_shifts():
    module, x, condition = nk.create("film", 3, condition_features=5, dtype=D), rand(2, 3, 4), rand(2, 5, seed=1)
    scale, shift = F.linear(condition, module.modulation.weight, module.modulation.bias).unsqueeze(-1).chunk(2, dim=1)
    torch.testing.assert_close(module(x, condition), (1 + scale) * x + shift)
