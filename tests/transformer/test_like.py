"""Families of open models: logits equal to those of transformers' modules, weights that go there and back."""

import copy

import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load
from normkit.transformer.like import FAMILIES

TOKENS = torch.randint(17, (2, 12), generator=torch.Generator().manual_seed(0))
MARKS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
SIZES = {
    **{"vocab_size": 17, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "attn_implementation": "eager", **MARKS},
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 8}
GPT2 = {"vocab_size": 17, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32, **MARKS}
OSS = {"head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 4}

# family, class of the configuration, what it says
CASES = {
    "gpt-2": ("gpt-2", "GPT2Config", GPT2),
    "gpt-2 own": ("gpt-2", "GPT2Config", GPT2 | {"n_inner": 20, "activation_function": "relu"}),
    "gpt-2 head": ("gpt-2", "GPT2Config", GPT2 | {"tie_word_embeddings": False}),
    "llama": ("llama", "LlamaConfig", SIZES),
    "llama biases": (
        *("llama", "LlamaConfig"),
        SIZES | {"attention_bias": True, "mlp_bias": True, "head_dim": 8, "tie_word_embeddings": True},
    ),
    "llama attention bias": ("llama", "LlamaConfig", SIZES | {"attention_bias": True, "hidden_act": "gelu"}),
    "llama 3": (
        *("llama", "LlamaConfig"),
        SIZES
        | {
            "rope_parameters": {
                **{"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0},
                **{"high_freq_factor": 4.0, "original_max_position_embeddings": 16},
            }
        },
    ),
    "olmo-3": ("olmo-3", "Olmo3Config", SIZES | {"num_hidden_layers": 5, "sliding_window": 4}),
    "olmo-3 yarn": (
        *("olmo-3", "Olmo3Config"),
        SIZES
        | {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 4}
        | {
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
    ),
    "gpt-oss": ("gpt-oss", "GptOssConfig", SIZES | OSS),
    "gpt-oss plain": (
        *("gpt-oss", "GptOssConfig"),
        SIZES | OSS | {"attention_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "glm": ("glm", "GlmConfig", SIZES | {"head_dim": 8}),
    "glm whole": (
        *("glm", "GlmConfig"),
        SIZES
        | {"head_dim": 8, "attention_bias": False}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}},
    ),
}

NEXT = {
    **{"head_dim": 8, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 10, "num_experts": 6},
    **{"num_experts_per_tok": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 5, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 4, "num_hidden_layers": 4},
}
KIMI = {
    **{"moe_intermediate_size": 12, "num_local_experts": 6, "num_experts_per_tok": 2, "kv_lora_rank": 7},
    **{"qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "linear_head_dim": 6, "linear_num_heads": 3},
    **{"num_hidden_layers": 5, "num_key_value_heads": 4},
}
CASES |= {
    "qwen3-next": ("qwen3-next", "Qwen3NextConfig", SIZES | NEXT),
    "qwen3-next own": (
        *("qwen3-next", "Qwen3NextConfig"),
        SIZES
        | NEXT
        | {"layer_types": ["full_attention", "linear_attention", "linear_attention"], "num_hidden_layers": 3}
        | {"mlp_only_layers": [1], "norm_topk_prob": False, "attention_bias": True, "tie_word_embeddings": True}
        | {"linear_conv_kernel_dim": 2, "linear_num_key_heads": 4}
        | {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}},
    ),
    "kimi-linear": ("kimi-linear", "KimiLinearConfig", SIZES | KIMI),
    "kimi-linear own": (
        *("kimi-linear", "KimiLinearConfig"),
        SIZES
        | KIMI
        | {"q_lora_rank": 9, "n_group": 3, "topk_group": 2, "norm_topk_prob": False, "n_shared_experts": 2}
        | {"layer_types": ["full_attention", "linear_attention"], "num_hidden_layers": 2}
        | {"mlp_layer_types": ["sparse", "dense"], "routed_scaling_factor": 1.5},
    ),
}

V4 = {
    **{"moe_intermediate_size": 12, "n_routed_experts": 6, "num_experts_per_tok": 2, "head_dim": 8},
    **{"q_lora_rank": 7, "partial_rotary_factor": 0.5, "sliding_window": 4, "o_groups": 2, "o_lora_rank": 5},
    **{"index_n_heads": 3, "index_head_dim": 6, "index_topk": 2, "hc_mult": 3, "num_key_value_heads": 1},
    **{"compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 3}},
    **{"layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]},
    **{"mlp_layer_types": ["hash_moe", "moe", "moe"]},
}
CASES |= {
    "deepseek-v4": ("deepseek-v4", "DeepseekV4Config", SIZES | V4),
    "deepseek-v4 own": (
        *("deepseek-v4", "DeepseekV4Config"),
        SIZES
        | V4
        | {"hc_mult": 2, "hc_sinkhorn_iters": 3, "index_topk": 50, "scoring_func": "sigmoid", "sliding_window": 2}
        | {"routed_scaling_factor": 1.0, "tie_word_embeddings": True, "o_groups": 1}
        | {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}},
    ),
}

SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA = {
    **{"num_hidden_layers": 6, "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL], "sliding_window": 4},
    **{"head_dim": 8, "altup_num_inputs": 3, "laurel_rank": 3, "num_kv_shared_layers": 2},
    **{"hidden_size_per_layer_input": 5, "vocab_size_per_layer_input": 13},
    "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.0, 0.0, 0.3],
}
CASES |= {
    "gemma-3n": ("gemma-3n", "Gemma3nTextConfig", SIZES | GEMMA),
    "gemma-3n own": (
        *("gemma-3n", "Gemma3nTextConfig"),
        SIZES
        | GEMMA
        | {"intermediate_size": [24, 20, 12], "num_hidden_layers": 3, "layer_types": [FULL, SLIDING, SLIDING]}
        | {"num_kv_shared_layers": 0, "altup_num_inputs": 2, "tie_word_embeddings": False, "attention_bias": True}
        | {"activation_sparsity_pattern": [0.0, 0.2, 0.0], "hidden_activation": "silu", "final_logit_softcapping": 2.0}
        | {"vocab_size_per_layer_input": 17}
        | {"rope_parameters": {FULL: YARN, SLIDING: {"rope_type": "default", "rope_theta": 100.0}}},
    ),
}

V4S = ["deepseek-v4", "deepseek-v4 own"]


@pytest.fixture(scope="module")
def transformers():
    let_torchvision_load()
    return pytest.importorskip("transformers")


def twins(transformers, case):
    name, cls, settings = CASES[case]
    torch.manual_seed(0)
    config = getattr(transformers, cls)(**settings)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for key, value in theirs.state_dict().items():  # gains, biases and sinks too
            if not value.is_floating_point():  # the experts of a token
                value.copy_(torch.stack([torch.randperm(6)[:2] for _ in value]))
                continue
            value.add_(0.3 * torch.randn(value.shape))
            if key.endswith("A_log"):  # the start of it may be what memory held
                value.copy_(torch.randn(value.shape))
    ours = nk.Decoder.like(name, config).eval()
    ours.load_theirs(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_logits_are_those_of_transformers_and_weights_go_back(transformers, case):
    ours, theirs = twins(transformers, case)
    want = theirs(TOKENS).logits
    assert want.std() > 0.1
    scale = want.abs().max().item()
    torch.testing.assert_close(ours(TOKENS), want, rtol=0, atol=1e-5 * scale)
    again = copy.deepcopy(theirs)
    for parameter in again.parameters():
        parameter.zero_()
    again.load_state_dict(ours.their_state(), strict=True)
    assert torch.equal(again(TOKENS).logits, want)


@pytest.mark.parametrize(
    "case",
    ["olmo-3 yarn", "gpt-oss", "glm", "qwen3-next", "kimi-linear", "kimi-linear own", *V4S, "gemma-3n", "gemma-3n own"],
)
def test_generation_with_a_cache_is_theirs(transformers, case):
    ours, theirs = twins(transformers, case)
    want = theirs.generate(TOKENS, max_new_tokens=6, do_sample=False)
    assert torch.equal(ours.generate(TOKENS, 6, temperature=0), want)


@pytest.mark.parametrize("case", ["qwen3-next", "kimi-linear own"])
@torch.no_grad()
def test_long_texts_and_padding_are_read_as_theirs(transformers, case):
    ours, theirs = twins(transformers, case)
    tokens = torch.randint(17, (2, 150), generator=torch.Generator().manual_seed(1))
    seen = torch.ones(2, 150, dtype=torch.bool)
    seen[0, :30] = False
    want, got = theirs(tokens, attention_mask=seen.long()).logits[seen], ours(tokens, seen)[seen]
    true = copy.deepcopy(ours).double()(tokens, seen)[seen]
    apart, own = ((logits - true).abs().max() / true.abs().max() for logits in (want, got))
    # Many tokens add up what float32 rounds off, on most processors in their scan more than in ours.
    assert own <= 2 * apart <= 2e-4
    assert not torch.allclose(ours(tokens)[seen], got)


def test_a_drawn_model_of_each_family_trains(transformers):
    for name, cls, settings in (CASES[case] for case in FAMILIES):
        model = nk.Decoder.like(name, getattr(transformers, cls)(**settings))
        model(TOKENS).square().sum().backward()
        assert model.family == name


def test_what_a_row_has_not_is_refused_by_its_name(transformers):
    llama = transformers.LlamaConfig
    for name, config, message in [
        ("lama", llama(**SIZES), "family must be one of 'gpt-2'"),
        (["llama"], llama(**SIZES), "family must be one of 'gpt-2'"),
        ("glm", llama(**SIZES), "config must be transformers' of model_type 'glm', not one of model_type 'llama'"),
        ("llama", {}, "config must be transformers' of model_type 'llama', not dict"),
        ("llama", llama(**SIZES | {"hidden_act": "relu"}), "config.hidden_act must be one of 'silu'"),
        (
            "gpt-2",
            transformers.GPT2Config(**GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
            "config.scale_attn_by_inverse_layer_idx must be False for 'gpt-2', not True",
        ),
        (
            "gpt-oss",
            transformers.GptOssConfig(**SIZES | OSS | {"swiglu_limit": 5.0}),
            "config.swiglu_limit must be 7.0",
        ),
        (
            "deepseek-v4",
            transformers.DeepseekV4Config(**SIZES | V4 | {"hc_eps": 1e-5}),
            "config.hc_eps must be 1e-06",
        ),
        (
            "deepseek-v4",
            transformers.DeepseekV4Config(**SIZES | V4 | {"scoring_func": "tanh"}),
            "config.scoring_func must be one of 'sqrtsoftplus', 'sigmoid', 'softmax', not 'tanh'",
        ),
        (
            "gemma-3n",
            transformers.Gemma3nTextConfig(**SIZES | GEMMA | {"altup_active_idx": 1}),
            "config.altup_active_idx must be 0 for 'gemma-3n', not 1",
        ),
        (
            "gemma-3n",
            transformers.Gemma3nTextConfig(**SIZES | GEMMA | {"altup_correct_scale": False}),
            "config.altup_correct_scale must be True",
        ),
        ("gemma-3n", transformers.Gemma3nConfig(), "not one of model_type 'gemma3n'"),
        (
            "llama",
            llama(**SIZES | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
            "config.rope_parameters of rope_type='dynamic' depend on the text's length",
        ),
    ]:
        with pytest.raises(ValueError, match=r"Decoder\.like: ") as error:
            nk.Decoder.like(name, config)
        assert message in str(error.value)


def test_weights_that_do_not_fit_are_named_and_change_nothing(transformers):
    ours, theirs = twins(transformers, "llama")
    before, state = {k: v.clone() for k, v in ours.state_dict().items()}, theirs.state_dict()
    key = "model.layers.1.mlp.gate_proj.weight"
    for change, message in [
        ({k: v for k, v in state.items() if k != key}, f"state lacks {key}"),
        (state | {"model.layers.1.more": torch.ones(1)}, "state has model.layers.1.more, which the model has not"),
        (state | {"model.layers.1.mlp.up_proj.bias": torch.ones(24)}, "up_proj.bias, which the model has not"),
        (state | {key: torch.ones(25, 16)}, f"{key} must make (48, 16), but (49, 16) came"),
    ]:
        with pytest.raises(ValueError, match=r"Decoder\.load_theirs: ") as error:
            ours.load_theirs(change)
        assert message in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())
    with pytest.raises(ValueError, match=r"build it by Decoder\.like"):
        nk.Decoder(vocab=11, dim=8, depth=1, heads=2).their_state()
