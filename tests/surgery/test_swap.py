"""Norms of models of timm and transformers are found by what they compute, and exchanged."""

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.contract.subject import build, draw
from normkit.optional import library
from normkit.surgery.recognition import recognize
from normkit.surgery.replacement import fits
from normkit.surgery.replacement.swapping import places, sites
from sizes import calls

timm, transformers = library("timm"), library("transformers")


def test_a_llama_has_two_norms_a_layer_and_one_at_the_end():
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    assert list(sites(model).values()) == [False] * 5
    assert len(nk.swap(model, "dyt").done) == 5
    assert not [m for m in model.modules() if type(m).__name__ == "LlamaRMSNorm"]
    assert model(torch.zeros(1, 3, dtype=torch.long)).logits.isfinite().all()
    assert len(sites(model)) == 5


class Small(nn.Module):
    """What is in a ResNet."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)
        self.conv, self.last = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        return self.last(self.conv(self.norm(self.stem(x))))


def test_a_network_of_images_takes_image_norms_and_those_over_features():
    model = Small()
    assert sites(model) == {"norm": True, "last": True}
    before = {n: p.clone() for n, p in model.named_parameters() if p.dim() == 4}
    x = torch.randn(2, 1, 9, 9)
    for norm in ("groupnorm:num_groups=4", "frn", "dyt"):
        copied = nk.swap(model, norm, inplace=False).model
        assert copied(x).shape == (2, 8, 5, 5)
        assert all(torch.equal(copied.get_parameter(n), p) for n, p in before.items())
    assert places(model) == {fits.Place(fits.IMAGES)}
    assert places(nn.Sequential(nk.RMSNorm(4), nk.LayerNorm(4))) == {fits.Place(fits.STREAM)}


def test_a_norm_over_features_acts_on_the_channels_of_an_image():
    x = torch.randn(2, 6, 3, 3)
    torch.testing.assert_close(fits.maker("layernorm", True)(6)(x), timm.layers.LayerNorm2d(6, eps=1e-5)(x))


def test_random_numbers_of_a_norm_do_not_move_those_of_the_model():
    torch.manual_seed(0)
    fits.maker("gdn", True)(4)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize("name", ["polynormer", "softmax-free", "jet-coupling", "tarflow-block", "fedlog-classifier"])
def test_a_norm_inside_a_method_is_what_the_method_computes(name):
    model, inputs = nn.ModuleDict({"part": build(name)}).double(), draw(name)
    outputs = lambda: [*torch.utils._pytree.tree_leaves(model["part"](*inputs))]  # noqa: E731
    before = outputs()
    nk.swap(model, "dyt")
    assert not torch.allclose(outputs()[0], before[0])


def test_what_does_not_fit_is_reported_with_what_does():
    with pytest.raises(ValueError, match=r"'frn' does not fit a stream of vectors.*rmsnorm"):
        fits.maker("frn")
    with pytest.raises(ValueError, match=r"adab2n:num_tasks="):
        fits.maker("adab2n", True)
    with pytest.raises(ValueError, match=r"no norm to replace; nothing.*its layers are Linear, ReLU"):
        nk.swap(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "rmsnorm")


@pytest.mark.parametrize("norm", ["dyt", "groupnorm:num_groups=8"])
def test_norms_that_took_a_place_are_known_with_what_holds_them(norm, monkeypatch):
    """An activation behind a norm, or axes turned around it, make no second norm, and nothing is probed again."""
    model = timm.create_model("test_resnet", num_classes=10)
    before = len(sites(model))
    nk.swap(model, norm)
    looked = []
    monkeypatch.setattr(recognize, "examine", lambda module, *_: looked.append(module) or recognize.Match("a layer"))
    assert len(sites(model)) == before
    assert not [part for part in looked if isinstance(part, recognize.Followed | fits.Laid)]


def test_twice_the_norms_take_twice_the_work():
    few, many = (nn.Sequential(*(nn.Sequential(nn.LayerNorm(2), nn.GELU()) for _ in range(n))) for n in (80, 160))
    nk.swap(nn.Sequential(nn.LayerNorm(2)), {"layernorm": "rmsnorm"})  # what is loaded at the first call
    assert calls(nk.swap, many, {"layernorm": "rmsnorm"}) < 2.1 * calls(nk.swap, few, {"layernorm": "rmsnorm"})
