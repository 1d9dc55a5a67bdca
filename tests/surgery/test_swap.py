"""Norms are found by type and exchanged."""

import pytest
import torch
from torch import nn

from normkit.optional import library
from normkit.surgery import swap

timm, transformers = library("timm"), library("transformers")


def small_llama():
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def test_a_llama_has_two_norms_a_layer_and_one_at_the_end():
    model = small_llama()
    sites = swap.norms(model)
    assert [(s.width, s.channels_first) for s in sites] == [(16, False)] * 5
    assert swap.swap(model, "dyt") == 5
    assert not [m for m in model.modules() if type(m).__name__ == "LlamaRMSNorm"]
    assert model(torch.zeros(1, 3, dtype=torch.long)).logits.isfinite().all()


@pytest.mark.parametrize("norm", ["batchnorm", "groupnorm:num_groups=4", "frn", "rmsnorm", "dyt"])
def test_a_resnet_takes_image_norms_and_those_over_features(norm):
    model = timm.create_model("resnet18", num_classes=3, in_chans=1)
    before = {n: p.clone() for n, p in model.named_parameters() if p.dim() == 4}
    assert swap.swap(model, norm) == 20
    assert all(torch.equal(model.get_parameter(n), p) for n, p in before.items())
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 3)


def test_the_activation_that_timm_fuses_with_a_norm_stays():
    model = nn.Sequential(nn.Conv2d(1, 4, 1), timm.layers.BatchNormAct2d(4))
    swap.swap(model, "batchnorm")
    assert model(torch.randn(8, 1, 2, 2)).min() >= 0


def test_a_norm_over_features_acts_on_the_channels_of_an_image():
    x = torch.randn(2, 6, 3, 3)
    torch.testing.assert_close(swap.maker("layernorm", True)(6)(x), timm.layers.LayerNorm2d(6, eps=1e-5)(x))


def test_random_numbers_of_a_norm_do_not_move_those_of_the_model():
    torch.manual_seed(0)
    swap.maker("gdn", True)(4)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))


def test_what_does_not_fit_is_told_with_what_does():
    with pytest.raises(ValueError, match=r"'frn' does not fit a stream of vectors.*rmsnorm"):
        swap.maker("frn")
    with pytest.raises(ValueError, match=r"adab2n:num_tasks="):
        swap.maker("adab2n", True)
    with pytest.raises(ValueError, match=r"no norm to replace; its layers are Linear, ReLU"):
        swap.swap(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "rmsnorm")
