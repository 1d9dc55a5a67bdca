"""Gates and sinks of attention, and norms with matrices of their own, are found by what they compute."""

import importlib

import near_misses_adaptive
import near_misses_gates
import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import let_torchvision_load
from normkit.surgery.recognition import wholes
from normkit.surgery.recognition.wholes import examine_whole

GATES, NORMS = near_misses_gates.TRUE, near_misses_adaptive.TRUE


def made(cls):
    torch.manual_seed(0)
    return cls()


@pytest.mark.parametrize("name", GATES)
def test_attention_is_found_with_its_core(name):
    cls, method, wanted = GATES[name]
    module = made(cls)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    match = examine_whole(module)
    assert match.name == method
    assert {key: match.kwargs[key] for key in wanted} == wanted
    assert max(match.error.values()) < 2e-4
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    if "Sinks" in name:
        assert torch.equal(match.module.sink, module.sinks)


class OutputByName(near_misses_gates.Gated):
    def written(self, y, x):
        return self.o_proj(input=y)


class ProjectedInFloat32(near_misses_gates.Gated):
    def gate(self, x):
        return nn.functional.linear(x.float(), self.gate_proj.weight.float()).sigmoid().to(x.dtype)


@pytest.mark.parametrize("cls", [OutputByName, ProjectedInFloat32])
def test_parts_that_cannot_be_listened_to_are_left_alone(cls):
    assert examine_whole(made(cls)) is None


def inputs_of(name):
    context = [torch.randn(3, 5, 8)] if name == "TwoStreams" else []
    width = 6 if name in ("Dual", "Lumina") else 8
    x = torch.randn(3, width, 4, 5) if name in ("Film", "Groups") else torch.randn(3, 7, width)
    tokens = (7,) if name == "OfEachToken" else ()
    return [x, *context, torch.randn(3, *tokens, 48 if name == "Single" else 6)]


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_found_with_their_numbers(name):
    cls, method, wanted = NORMS[name]
    module = made(cls)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape))
    match = examine_whole(module)
    assert match.name == method
    assert {key: match.kwargs[key] for key in wanted} == wanted
    given = inputs_of(name)
    theirs = module(given[0], emb=given[-1]) if name.startswith("Zero") else module(*given)
    ours = match.module(*given)
    if name == "TwoStreams":
        theirs = (*theirs[:2], *(gate.squeeze(1) for gate in theirs[2:]))
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def transformers():
    let_torchvision_load()
    return pytest.importorskip("transformers")


SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 2}
CLASSES = {
    "gpt_oss.GptOssAttention": ("attention-sinks", {"head_dim": 8, "heads": 4}),
    "qwen3_next.Qwen3NextAttention": ("gated-attention", {"head_dim": 8, "heads": 4}),
    "afmoe.AfmoeAttention": ("gated-attention", {"head_dim": 8, "heads": 4}),
    "hrm_text.HrmTextAttention": ("gated-attention", {"head_dim": 8, "heads": 4}),
    "flint.FlintAttention": ("attention-sinks", {"head_dim": 8, "heads": 4}),
    "llama.LlamaAttention": None,
    "granite_swa.GraniteSWAAttention": ("attention-sinks", {"head_dim": 8, "heads": 4, "scale": 1.0}),
    "step3p7.Step3p7Attention": ("gated-attention", {"head_dim": 8, "heads": 4}),
    "muse_spark.MuseSparkTextAttention": ("gated-attention", {"norm": True, "scale": 5.4730064863875 * 8**-0.5}),
    "muse_glimmer.MuseGlimmerTextAttention": ("gated-attention", {"norm": False, "scale": 3.87 * 8**-0.5}),
}


@pytest.mark.parametrize("name", CLASSES)
def test_attention_of_transformers_is_found(transformers, name):
    model, cls = name.split(".")
    modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    names = [key for key in vars(modeling) if key.endswith("Config") and key != "PreTrainedConfig"]
    names.sort(key=lambda key: "Text" not in key)
    match = examine_whole(getattr(modeling, cls)(getattr(modeling, names[0])(**SIZES), layer_idx=0))
    wanted = CLASSES[name]
    assert (match and match.name) == (wanted and wanted[0])
    assert wanted is None or {key: getattr(match.module, key) for key in wanted[1]} == pytest.approx(wanted[1])


def test_the_table_of_a_model_has_attention_and_the_norms_within(transformers):
    sizes = {
        "vocab_size": 11,
        "intermediate_size": 12,
        "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 12,
    }
    sizes |= {"num_experts": 4, "num_experts_per_tok": 2, "linear_num_value_heads": 2, "linear_num_key_heads": 2}
    sizes |= {"linear_key_head_dim": 4, "linear_value_head_dim": 4}
    config = transformers.Qwen3NextConfig(**SIZES | sizes, layer_types=["linear_attention", "full_attention"])
    model = transformers.AutoModelForCausalLM.from_config(config)
    found = {site: match.name for site, match in nk.recognize(model).found.items()}
    assert found["model.layers.1.self_attn"] == "gated-attention"
    assert found["model.layers.1.self_attn.q_norm"] == found["model.layers.1.self_attn.k_norm"] == "rmsnorm"
    assert found["model.layers.0.mlp.gate"] == "router"
    report = nk.swap(model, "layernorm", where=lambda name, module: "self_attn" in name)
    assert sorted(change.site for change in report.done) == [
        "model.layers.1.self_attn.k_norm",
        "model.layers.1.self_attn.q_norm",
    ]


def test_a_norm_within_an_adaptive_one_is_swapped_and_the_whole_is_not():
    model = nn.Sequential(made(near_misses_adaptive.TRUE["Continuous"][0]))
    assert {site: match.name for site, match in nk.recognize(model).found.items()} == {
        "0": "adaln-continuous",
        "0.norm": "layernorm",
    }
    assert [change.site for change in nk.swap(model, "rmsnorm").done] == ["0.norm"]


def test_plain_attention_is_not_copied(monkeypatch, transformers):
    looks = []
    monkeypatch.setattr(wholes, "redraw", lambda module: looks.append(type(module)) or module)
    config = transformers.LlamaConfig(**SIZES, vocab_size=11, intermediate_size=24)
    assert len(nk.recognize(transformers.LlamaForCausalLM(config)).found) == 5
    assert not looks


HANDED = {
    "afmoe.AfmoeTokenChoiceRouter": {"score": "sigmoid", "selection_bias": True},
    "hy_v3.HYV3TopKRouter": {"score": "sigmoid", "selection_bias": True, "renormalize": True},
    "minimax_m2.MiniMaxM2TopKRouter": {"score": "sigmoid", "selection_bias": True},
    "llama4.Llama4Router": {"score": "sigmoid", "renormalize": False, "selection_bias": False},
    "inkling2.Inkling2TopKRouter": {"score": "sigmoid", "selection_bias": True},
    "glm5_next.Glm5NextTextHyperConnection": {"eps": 1e-6, "norm_eps": 1e-5},
    "hy_v4.HYV4HyperHead": {"eps": 1e-6, "norm_eps": 1e-5},
    "hy_v4.HYV4HyperConnection": {"iterations": 0, "norm_eps": 1e-5, "magnitude": 2.0, "write_eps": 1e-6},
    "gemma4.Gemma4TextRouter": {"input_norm": True, "expert_scale": True, "logit_scale": 24**-0.5},
    "kolibri1.Kolibri1TopKRouter": {"choose_by": "logits", "score": "sigmoid"},
    "muse_spark.MuseSparkTopkRouter": {"score": "sigmoid", "selection_bias": True, "logit_scale": 0.1767766952966369},
    "inkling.InklingTopkRouter": {"score": "sigmoid", "shared": 2, "expert_scale": True, "scale": 8.0},
    "deepseek_v4.DeepseekV4HashRouter": {"score": "sqrt-softplus", "selection_bias": False, "scale": 1.5},
}


@pytest.mark.parametrize("name", HANDED)
def test_routers_and_streams_with_ways_of_their_own_are_found(transformers, name):
    model, cls = name.split(".")
    modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    names = [key for key in vars(modeling) if key.endswith("Config") and key != "PreTrainedConfig"]
    names.sort(key=lambda key: "Text" not in key)
    config = getattr(modeling, names[0])(hidden_size=24, num_attention_heads=4, num_key_value_heads=4)
    if getattr(config, "num_experts", 1) in (None, 1):
        config.num_experts, config.top_k_experts = 8, 2  # Gemma 4's has no experts unless asked to
    match = examine_whole(getattr(modeling, cls)(config))
    assert match is not None
    assert {key: match.kwargs[key] for key in HANDED[name]} == HANDED[name]
    assert ("handed in" in match.evidence[0]) == (name.split(".")[0] in ("afmoe", "hy_v3", "minimax_m2"))
