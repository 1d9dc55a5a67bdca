"""Families of open models: their configurations as arguments of :class:`Decoder`, their weights by our names and back.

A family is a row: what stands where, how it reads its numbers off a configuration of ``transformers``, and which of
their weights are ours. A configuration that asks for more than the row has is refused by the field's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.ops.rope import Frequencies
from normkit.transformer.attention import Attention, FeedForward
from normkit.transformer.compressed import CompressedAttention
from normkit.transformer.delta import DeltaNet
from normkit.transformer.latent import LatentAttention
from normkit.transformer.moe import MixtureOfExperts

if TYPE_CHECKING:
    from normkit.transformer.model import Decoder

ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
PLAIN = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}
LENGTHS = ("dynamic", "longrope")  # kinds of rotary angles that depend on how long the text is


def _swap_halves(w: Tensor, *_: object) -> Tensor:
    return torch.cat(w.chunk(2, -2)[::-1], -2)


def _deinterleave(w: Tensor, axis: int) -> Tensor:
    """Gate and u in turn along an axis, counted from the last, to all of u and then all gates."""
    gate, u = w.unflatten(axis, (-1, 2)).unbind(axis)
    return torch.cat([u, gate], axis)


def _interleave(w: Tensor, axis: int) -> Tensor:
    u, gate = w.chunk(2, axis)
    return torch.stack([gate, u], axis).flatten(axis - 1, axis)


def _ungroup(w: Tensor, sizes: Sequence[int], heads: int) -> Tensor:
    """The rows of several tensors head by head to all of the first, all of the second and so on."""
    parts = w.unflatten(0, (heads, -1)).split([size // heads for size in sizes], 1)
    return torch.cat([part.flatten(0, 1) for part in parts])


def _group(w: Tensor, sizes: Sequence[int], heads: int) -> Tensor:
    return torch.cat([part.unflatten(0, (heads, -1)) for part in w.split(list(sizes))], 1).flatten(0, 1)


def _same(w: Tensor, *_: Any) -> Tensor:
    return w


# from their tensors, joined, to ours, joined; and back. They know the rows of each of ours, and the heads of keys
CHANGES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "same": (_same, _same),
    "transposed": (lambda w, *_: w.mT, lambda w, *_: w.mT),
    "gate first": (_swap_halves, _swap_halves),
    "in turn, transposed": (lambda w, *_: _deinterleave(w.mT, -2), lambda w, *_: _interleave(w, -2).mT),
    "in turn": (lambda w, *_: _deinterleave(w, -1), lambda w, *_: _interleave(w, -1)),
    "head by head": (_ungroup, _group),
    "flat": (lambda w, *_: w.flatten(), lambda w, *_: w.view(1, 1, -1, 1)),
    "stacked": (lambda w, sizes, _: w.unflatten(0, (sizes[0], -1)), lambda w, *_: w.flatten(0, 1)),
}


class Weight(NamedTuple):
    """Tensors of ours, joined along their rows, that are tensors of theirs, joined and changed."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    change: str = "same"
    heads: int = 1


@dataclass(frozen=True)
class Family:
    """One row: the configuration's ``model_type``, arguments, and weights outside of and in each layer.

    parts: weights of the layers that have a sublayer of a class. stacked: tensors of ours whose rows are so many of
    theirs, which have a number in their names.
    """

    model_type: str
    arguments: Callable[[Any], dict[str, Any]]
    outside: tuple[Weight, ...]
    prefix: str
    inside: tuple[Weight, ...]
    wanted: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    parts: Mapping[type[nn.Module], tuple[Weight, ...]] = field(default_factory=dict)
    stacked: Mapping[str, str] = field(default_factory=dict)


def _one(ours: str, theirs: str, change: str = "same") -> Weight:
    return Weight((ours,), (theirs,), change)


def _linears(pairs: Mapping[str, str], ends: tuple[str, ...] = ("weight", "bias")) -> tuple[Weight, ...]:
    return tuple(_one(f"{our}.{end}", f"{their}.{end}") for our, their in pairs.items() for end in ends)


def _weights(ours: str, theirs: str, parts: Mapping[str, str]) -> tuple[Weight, ...]:
    """The weights of parts of a module, by what we and they call the module and its parts."""
    return _linears({f"{ours}.{our}": f"{theirs}.{their}" for our, their in parts.items()}, ("weight",))


PROJECTIONS = _linears(
    {
        f"attention.{our}": f"self_attn.{their}_proj"
        for our, their in zip(("query", "key", "value", "output"), "qkvo", strict=True)
    }
)
NORMS = (
    _one("attention_norm.weight", "input_layernorm.weight"),
    _one("feedforward_norm.weight", "post_attention_layernorm.weight"),
)
GATED = tuple(
    weight
    for end in ("weight", "bias")
    for weight in (
        Weight((f"feedforward.up.{end}",), (f"mlp.up_proj.{end}", f"mlp.gate_proj.{end}")),
        _one(f"feedforward.down.{end}", f"mlp.down_proj.{end}"),
    )
)
HEAD = ("head.weight",)
OUTSIDE = (
    _one("embedding.weight", "model.embed_tokens.weight"),
    _one("norm.weight", "model.norm.weight"),
    _one("head.weight", "lm_head.weight"),
)


def _sizes(config: Any) -> dict[str, Any]:
    """What all configurations have, GPT-2's under these names too."""
    return {
        "vocab": config.vocab_size,
        "dim": config.hidden_size,
        "depth": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "tied": config.tie_word_embeddings,
        "std": config.initializer_range,
    }


def _common(config: Any) -> dict[str, Any]:
    """What all families after GPT-2 say in the same words."""
    return _sizes(config) | {
        "kv_heads": config.num_key_value_heads,
        "head_dim": getattr(config, "head_dim", None),
        "hidden": config.intermediate_size,
        "norm": f"rmsnorm:eps={config.rms_norm_eps!r}",
    }


def _activation(config: Any, name: str = "hidden_act", known: Mapping[str, str] = ACTIVATIONS) -> str:
    return known[check.choice("Decoder.like", f"config.{name}", getattr(config, name), tuple(known))]


def _frequencies(config: Any, layer_type: str | None = None) -> Frequencies:
    """The rotary angles that a configuration asks for, by transformers' own rule where they are scaled."""
    rope = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    kind = rope.get("rope_type", "default")
    if kind in LENGTHS:
        raise ValueError(f"Decoder.like: config.rope_parameters of rope_type={kind!r} depend on the text's length")
    if kind != "default":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        further = {} if layer_type is None else {"layer_type": layer_type}
        values, scale = ROPE_INIT_FUNCTIONS[kind](config, None, **further)
        return Frequencies(tuple(values.tolist()), float(scale))
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    turned = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    order = torch.arange(0, turned, 2, dtype=torch.float32)
    return Frequencies(tuple((1.0 / rope["rope_theta"] ** (order / turned)).tolist()))


def _windows(config: Any) -> list[int | None]:
    return [config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types]


def _bias(attention: bool, feedforward: bool) -> bool | str:
    return True if attention and feedforward else "attention" if attention else "feedforward" if feedforward else False


def _gpt2(config: Any) -> dict[str, Any]:
    return _sizes(config) | {
        "hidden": 4 * config.n_embd if config.n_inner is None else config.n_inner,
        "length": config.n_positions,
        "positions": "learned",
        "norm": f"layernorm:eps={config.layer_norm_epsilon!r}",
        "activation": _activation(config, "activation_function", PLAIN),
        "bias": True,
        "scale_outputs": True,
    }


def _llama(config: Any) -> dict[str, Any]:
    return _common(config) | {
        "activation": _activation(config),
        "bias": _bias(config.attention_bias, config.mlp_bias),
        "frequencies": [_frequencies(config)],
    }


def _olmo3(config: Any) -> dict[str, Any]:
    return _common(config) | {
        "placement": "res-post-norm",
        "query_key_norm": "width",
        "activation": _activation(config),
        "bias": _bias(config.attention_bias, False),
        "window": _windows(config),
        "frequencies": [_frequencies(config, kind) for kind in config.layer_types],
    }


def _gpt_oss(config: Any) -> dict[str, Any]:
    return _common(config) | {
        "core": "attention-sinks",
        "bias": True if config.attention_bias else "feedforward",
        "window": _windows(config),
        "frequencies": [_frequencies(config)],
        "feedforward": "moe",
        "activation": "clamped_swiglu",
        "router": f"gpt-oss-router:experts={config.num_local_experts},top_k={config.num_experts_per_tok}",
    }


def _glm(config: Any) -> dict[str, Any]:
    return _common(config) | {
        "activation": _activation(config),
        "bias": "query_key_value" if config.attention_bias else False,
        "rotary": "pairs",
        "frequencies": [_frequencies(config)],
    }


def _experts(config: Any, router: str, count: int, shared: int, **more: Any) -> dict[str, Any]:
    """The arguments of a layer that has a mixture; ``router`` has the family's own."""
    return {
        "feedforward": "moe",
        "hidden": config.moe_intermediate_size,
        "router": f"{router},experts={count},top_k={config.num_experts_per_tok}",
        "feedforward_options": {"shared": shared, **more},
    }


def _qwen3_next(config: Any) -> dict[str, Any]:
    common = _common(config)
    rope = config.rope_parameters
    own: dict[str, Any] = {name: common.pop(name) for name in ("kv_heads", "head_dim")}
    own |= {
        "core": "gated-attention",
        "query_key_norm": "head",
        "rotary_dim": int(own["head_dim"] * rope.get("partial_rotary_factor", 1.0)),
        "bias": "attention" if config.attention_bias else False,
    }
    linear = {
        "mixer": "delta-net",
        "mixer_options": {
            "heads": config.linear_num_value_heads,
            "key_heads": config.linear_num_key_heads,
            "key_dim": config.linear_key_head_dim,
            "value_dim": config.linear_value_head_dim,
            "taps": config.linear_conv_kernel_dim,
            "norm": common["norm"],
        },
    }
    router = f"router:renormalize={config.norm_topk_prob}"
    experts = _experts(config, router, config.num_experts, config.shared_expert_intermediate_size, shared_gate=True)
    sparse = [
        i not in config.mlp_only_layers and config.num_experts > 0 and (i + 1) % config.decoder_sparse_step == 0
        for i in range(config.num_hidden_layers)
    ]
    return common | {
        "norm": f"{common['norm']},offset=1.0",
        "activation": "swiglu",
        "frequencies": [_frequencies(config)],
        "each": [
            (linear if kind == "linear_attention" else own) | (experts if mixed else {})
            for kind, mixed in zip(config.layer_types, sparse, strict=True)
        ],
    }


def _kimi_delta(config: Any, norm: str) -> dict[str, Any]:
    return {
        "mixer": "delta-net",
        "mixer_options": {
            "heads": config.linear_num_heads,
            "key_dim": config.linear_head_dim,
            "value_dim": config.linear_head_dim,
            "taps": config.linear_conv_kernel_dim,
            "decay": "feature",
            "gate": "sigmoid",
            "rank": config.linear_head_dim,
            "norm": norm,
        },
    }


def _kimi_linear(config: Any) -> dict[str, Any]:
    common = _common(config)
    del common["kv_heads"], common["head_dim"]
    latent = {
        "mixer": "latent",
        "mixer_options": {
            "rank": config.kv_lora_rank,
            "head_dim": config.qk_nope_head_dim,
            "shared_dim": config.qk_rope_head_dim,
            "value_dim": config.v_head_dim,
            "query_rank": config.q_lora_rank,
            "norm": "rmsnorm:eps=1e-06",
        },
    }
    router = (
        f"kimi-router:renormalize={config.norm_topk_prob},scale={config.routed_scaling_factor!r},"
        f"groups={config.n_group},kept_groups={config.topk_group}"
    )
    shared = config.moe_intermediate_size * config.n_shared_experts
    experts = _experts(config, router, config.num_local_experts, shared)
    linear = _kimi_delta(config, common["norm"])
    return common | {
        "positions": None,
        "activation": "swiglu",
        "each": [
            (linear if kind == "linear_attention" else latent) | (experts if mixed == "sparse" else {})
            for kind, mixed in zip(config.layer_types, config.mlp_layer_types, strict=True)
        ],
    }


SCORES = {"sqrtsoftplus": "sqrt-softplus", "sigmoid": "sigmoid", "softmax": "softmax"}


def _deepseek_v4(config: Any) -> dict[str, Any]:
    norm = f"rmsnorm:eps={config.rms_norm_eps!r}"
    shared = {
        "head_dim": config.head_dim,
        "query_rank": config.q_lora_rank,
        "groups": config.o_groups,
        "output_rank": config.o_lora_rank,
        "window": config.sliding_window,
        "norm": norm,
    }
    index = {"index_heads": config.index_n_heads, "index_dim": config.index_head_dim, "top_k": config.index_topk}
    near, far = (_frequencies(config, label) for label in ("main", "compress"))
    rates = config.compress_rates
    mixers = {
        "sliding_attention": {"frequencies": near},
        "heavily_compressed_attention": {"frequencies": far, "rate": rates["heavily_compressed_attention"]},
        "compressed_sparse_attention": {"frequencies": far, "rate": rates["compressed_sparse_attention"], **index},
    }
    score = SCORES[check.choice("Decoder.like", "config.scoring_func", config.scoring_func, tuple(SCORES))]
    router = f"deepseek-v4-router:score={score},scale={config.routed_scaling_factor!r}"
    width, count = config.moe_intermediate_size, config.n_routed_experts
    feedforwards = {
        "moe": _experts(config, router, count, width),
        "hash_moe": _experts(config, f"{router},selection_bias=False", count, width, hashed=config.vocab_size),
    }
    return _sizes(config) | {
        "placement": "mhc",
        "streams": config.hc_mult,
        "iterations": config.hc_sinkhorn_iters,
        "norm": norm,
        "positions": None,
        "activation": "limited_swiglu",
        "each": [
            {"mixer": "compressed", "mixer_options": shared | mixers[kind]} | feedforwards[mixed]
            for kind, mixed in zip(config.layer_types, config.mlp_layer_types, strict=True)
        ],
    }


def _gemma3n(config: Any) -> dict[str, Any]:
    common = _common(config)
    del common["hidden"]
    last: dict[str, int] = {}
    each: list[dict[str, Any]] = []
    for i, (kind, mode) in enumerate(zip(config.layer_types, config.kv_sharing_modes, strict=True)):
        sparsity = {"sparsity": config.activation_sparsity_pattern[i]}
        each.append({"hidden": config.intermediate_size[i], "feedforward_options": sparsity})
        if mode == "reuse":
            each[i]["keys_of"] = last[kind]
        else:
            last[kind] = i
    return common | {
        "placement": "altup",
        "streams": config.altup_num_inputs,
        "rank": config.laurel_rank,
        "query_key_norm": "head",
        "value_norm": f"{common['norm']},affine=False",
        "core_options": {"scale": 1.0},
        "activation": _activation(config, "hidden_activation"),
        "bias": _bias(config.attention_bias, False),
        "window": _windows(config),
        "frequencies": [_frequencies(config, kind) for kind in config.layer_types],
        "scale_embedding": True,
        "logit_softcap": config.final_logit_softcapping,
        "layer_inputs": config.hidden_size_per_layer_input,
        "layer_vocab": config.vocab_size_per_layer_input,
        "each": each,
    }


EXPERTS = (
    _one("feedforward.router.weight", "mlp.gate.weight"),
    _one("feedforward.up.weight", "mlp.experts.gate_up_proj", "gate first"),
    _one("feedforward.down.weight", "mlp.experts.down_proj"),
)


def _shared(theirs: str) -> tuple[Weight, ...]:
    return (
        Weight(("feedforward.shared.up.weight",), (f"mlp.{theirs}.up_proj.weight", f"mlp.{theirs}.gate_proj.weight")),
        _one("feedforward.shared.down.weight", f"mlp.{theirs}.down_proj.weight"),
    )


def _connection(ours: str, theirs: str, *names: str) -> tuple[Weight, ...]:
    """The numbers of a connection of mhc, or of its head."""
    named = zip(("weight", "bias", "scale"), names, strict=True)
    return tuple(_one(f"{ours}.{our}", f"{theirs}.{their}") for our, their in named)


def _compressor(ours: str, theirs: str) -> tuple[Weight, ...]:
    parts = {"key": "kv_proj", "gate": "gate_proj", "norm": "kv_norm"}
    return (*_weights(ours, theirs, parts), _one(f"{ours}.bias", f"{theirs}.position_bias"))


FAMILIES: dict[str, Family] = {
    "gpt-2": Family(
        "gpt2",
        _gpt2,
        (
            _one("embedding.weight", "transformer.wte.weight"),
            _one("positions.weight", "transformer.wpe.weight"),
            *_linears({"norm": "transformer.ln_f"}),
            OUTSIDE[-1],
        ),
        "transformer.h.",
        (
            *_linears({"attention_norm": "ln_1", "feedforward_norm": "ln_2"}),
            *(
                Weight(
                    tuple(f"attention.{name}.{end}" for name in ("query", "key", "value")),
                    (f"attn.c_attn.{end}",),
                    change,
                )
                for end, change in (("weight", "transposed"), ("bias", "same"))
            ),
            *(
                _one(f"{our}.{end}", f"{their}.{end}", change)
                for our, their in {
                    "attention.output": "attn.c_proj",
                    "feedforward.up": "mlp.c_fc",
                    "feedforward.down": "mlp.c_proj",
                }.items()
                for end, change in (("weight", "transposed"), ("bias", "same"))
            ),
        ),
        {
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "reorder_and_upcast_attn": False,
            "add_cross_attention": False,
        },
        (".attn.bias", ".attn.masked_bias"),
    ),
    "llama": Family("llama", _llama, OUTSIDE, "model.layers.", (*PROJECTIONS, *NORMS, *GATED)),
    "olmo-3": Family(
        "olmo3",
        _olmo3,
        OUTSIDE,
        "model.layers.",
        (
            *PROJECTIONS,
            _one("attention.query_norm.weight", "self_attn.q_norm.weight"),
            _one("attention.key_norm.weight", "self_attn.k_norm.weight"),
            _one("attention_output_norm.weight", "post_attention_layernorm.weight"),
            _one("feedforward_output_norm.weight", "post_feedforward_layernorm.weight"),
            *GATED,
        ),
    ),
    "gpt-oss": Family(
        "gpt_oss",
        _gpt_oss,
        OUTSIDE,
        "model.layers.",
        (
            *PROJECTIONS,
            *NORMS,
            _one("attention.core.sink", "self_attn.sinks"),
            *_linears({"feedforward.router": "mlp.router"}),
            _one("feedforward.up.weight", "mlp.experts.gate_up_proj", "in turn, transposed"),
            _one("feedforward.up.bias", "mlp.experts.gate_up_proj_bias", "in turn"),
            _one("feedforward.down.weight", "mlp.experts.down_proj", "transposed"),
            _one("feedforward.down.bias", "mlp.experts.down_proj_bias"),
        ),
        {"swiglu_alpha": 1.702, "swiglu_limit": 7.0, "hidden_act": "silu"},
    ),
    "glm": Family(
        "glm",
        _glm,
        OUTSIDE,
        "model.layers.",
        (
            *PROJECTIONS,
            *NORMS,
            _one("feedforward.up.weight", "mlp.gate_up_proj.weight", "gate first"),
            _one("feedforward.down.weight", "mlp.down_proj.weight"),
        ),
    ),
    "qwen3-next": Family(
        "qwen3_next",
        _qwen3_next,
        OUTSIDE,
        "model.layers.",
        NORMS,
        {"hidden_act": "silu"},
        parts={
            Attention: (
                *(
                    Weight(
                        (f"attention.query.{end}", f"attention.gate.{end}"),
                        (f"self_attn.q_proj.{end}",),
                        "head by head",
                    )
                    for end in ("weight", "bias")
                ),
                *PROJECTIONS[2:],
                _one("attention.query_norm.weight", "self_attn.q_norm.weight"),
                _one("attention.key_norm.weight", "self_attn.k_norm.weight"),
            ),
            DeltaNet: (
                Weight(
                    tuple(f"attention.{name}.weight" for name in ("query", "key", "value", "gate")),
                    ("linear_attn.in_proj_qkvz.weight",),
                    "head by head",
                ),
                Weight(
                    ("attention.beta.weight", "attention.decay.weight"),
                    ("linear_attn.in_proj_ba.weight",),
                    "head by head",
                ),
                _one("attention.convolution.weight", "linear_attn.conv1d.weight"),
                _one("attention.decay_rate", "linear_attn.A_log"),
                _one("attention.decay_offset", "linear_attn.dt_bias"),
                _one("attention.norm.weight", "linear_attn.norm.weight"),
                _one("attention.output.weight", "linear_attn.out_proj.weight"),
            ),
            FeedForward: GATED,
            MixtureOfExperts: (
                *EXPERTS,
                *_shared("shared_expert"),
                _one("feedforward.shared_gate.weight", "mlp.shared_expert_gate.weight"),
            ),
        },
    ),
    "kimi-linear": Family(
        "kimi_linear",
        _kimi_linear,
        OUTSIDE,
        "model.layers.",
        NORMS,
        {"hidden_act": "silu", "attention_bias": False},
        parts={
            LatentAttention: (
                _one("attention.query.weight", "self_attn.q_proj.weight"),
                _one("attention.query_up.weight", "self_attn.q_b_proj.weight"),
                _one("attention.query_down.weight", "self_attn.q_a_proj.weight"),
                _one("attention.query_norm.weight", "self_attn.q_a_layernorm.weight"),
                _one("attention.down.weight", "self_attn.kv_a_proj_with_mqa.weight"),
                _one("attention.norm.weight", "self_attn.kv_a_layernorm.weight"),
                _one("attention.up.weight", "self_attn.kv_b_proj.weight"),
                _one("attention.output.weight", "self_attn.o_proj.weight"),
            ),
            DeltaNet: (
                *PROJECTIONS,
                *_weights(
                    "attention",
                    "self_attn",
                    {
                        "beta": "b_proj",
                        "decay.0": "forget_gate.f_a_proj",
                        "decay.1": "forget_gate.f_b_proj",
                        "gate.0": "g_a_proj",
                        "gate.1": "g_b_proj",
                        "convolution": "conv1d",
                        "norm": "o_norm",
                    },
                ),
                _one("attention.decay_rate", "self_attn.forget_gate.A_log", "flat"),
                _one("attention.decay_offset", "self_attn.forget_gate.dt_bias"),
            ),
            FeedForward: GATED,
            MixtureOfExperts: (
                *EXPERTS,
                *_shared("shared_experts"),
                _one("feedforward.router.selection_bias", "mlp.gate.e_score_correction_bias"),
            ),
        },
    ),
    "deepseek-v4": Family(
        "deepseek_v4",
        _deepseek_v4,
        (*OUTSIDE, *_connection("collapse", "model.hc_head", "hc_fn", "hc_base", "hc_scale")),
        "model.layers.",
        (
            *NORMS,
            *_connection("attention_connection", "attn_hc", "fn", "base", "scale"),
            *_connection("feedforward_connection", "ffn_hc", "fn", "base", "scale"),
        ),
        {"hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-6, "hc_eps": 1e-6, "mlp_bias": False},
        parts={
            CompressedAttention: (
                *_weights(
                    "attention",
                    "self_attn",
                    {
                        "query_down": "q_a_proj",
                        "query_norm": "q_a_norm",
                        "query_up": "q_b_proj",
                        "key": "kv_proj",
                        "norm": "kv_norm",
                        "output_down": "o_a_proj",
                        "output": "o_b_proj",
                        "indexer.query": "compressor.indexer.q_b_proj",
                        "indexer.weigh": "compressor.indexer.scorer.weights_proj",
                    },
                ),
                _one("attention.core.sink", "self_attn.sinks"),
                *_compressor("attention.compressor", "self_attn.compressor"),
                *_compressor("attention.indexer.compressor", "self_attn.compressor.indexer"),
            ),
            MixtureOfExperts: (
                *EXPERTS,
                *_shared("shared_experts"),
                _one("feedforward.router.selection_bias", "mlp.gate.e_score_correction_bias"),
                _one("feedforward.table", "mlp.gate.tid2eid"),
            ),
        },
    ),
    "gemma-3n": Family(
        "gemma3n_text",
        _gemma3n,
        (
            *OUTSIDE,
            *_weights(
                "layer_inputs",
                "model",
                {
                    "embedding": "embed_tokens_per_layer",
                    "projection": "per_layer_model_projection",
                    "norm": "per_layer_projection_norm",
                },
            ),
        ),
        "model.layers.",
        (
            *PROJECTIONS,
            *GATED,
            *_linears(
                {
                    "attention.query_norm": "self_attn.q_norm",
                    "attention.key_norm": "self_attn.k_norm",
                    "attention_norm": "input_layernorm",
                    "attention_output_norm": "post_attention_layernorm",
                    "feedforward_norm": "pre_feedforward_layernorm",
                    "feedforward_output_norm": "post_feedforward_layernorm",
                    "altup.norm": "altup.router_norm",
                    "attention_laurel.norm": "laurel.post_laurel_norm",
                    "layer_input.gate": "per_layer_input_gate",
                    "layer_input.output": "per_layer_projection",
                    "layer_input_output_norm": "post_per_layer_input_norm",
                },
                ("weight",),
            ),
            _one("altup.router", "altup.modality_router.weight"),
            _one("altup.prediction", "altup.prediction_coefs.weight"),
            _one("altup.correction", "altup.correction_coefs.weight"),
            _one("attention_laurel.down", "laurel.linear_left.weight"),
            _one("attention_laurel.up", "laurel.linear_right.weight"),
            _one("layer_input_scale", "altup.correct_output_scale"),
        ),
        {"altup_active_idx": 0, "altup_correct_scale": True},
        stacked={
            "expansion.weight": "model.altup_projections.{}.weight",
            "collapse.weight": "model.altup_unembed_projections.{}.weight",
        },
    ),
}


def family(name: str) -> Family:
    """Return a row."""
    return FAMILIES[check.choice("Decoder.like", "family", name, tuple(FAMILIES))]


def arguments(name: str, config: Any) -> dict[str, Any]:
    """Return the arguments of :class:`Decoder` for a family's configuration."""
    row = family(name)
    kind = getattr(config, "model_type", None)
    if kind != row.model_type:
        got = f"one of model_type {kind!r}" if kind else f"{type(config).__name__}"
        raise ValueError(f"Decoder.like: config must be transformers' of model_type {row.model_type!r}, not {got}")
    for entry, value in row.wanted.items():
        if getattr(config, entry) != value:
            raise ValueError(
                f"Decoder.like: config.{entry} must be {value!r} for {name!r}, not {getattr(config, entry)!r}"
            )
    return row.arguments(config)


def weights(name: str, model: Decoder) -> list[Weight]:
    """Return all rows of weights by their whole names."""
    row, entries = family(name), []
    for i in range(len(model.layers)):
        layer = model.layer(i)
        kinds = (type(layer.attention), type(layer.feedforward))
        heads = getattr(layer.attention, "key_heads", layer.attention.heads)
        entries += [
            Weight(
                tuple(f"layers.{i}.{our}" for our in weight.ours),
                tuple(f"{row.prefix}{i}.{their}" for their in weight.theirs),
                weight.change,
                heads,
            )
            for weight in (*row.inside, *(weight for kind in kinds for weight in row.parts.get(kind, ())))
        ]
    for our, their in row.stacked.items():
        numbered = tuple(their.format(i) for i in range(len(model.get_parameter(our))))
        entries.append(Weight((our,), numbered, "stacked"))
    return [*row.outside, *entries]


def our_state(name: str, model: Decoder, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state of theirs by our names; one that lacks or has other weights is refused by their names."""
    row, own = family(name), model.state_dict()
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    for weight in weights(name, model):
        present = set(weight.ours) <= set(own)
        if present or weight.ours == HEAD:  # the embedding is the head where there is none
            used.update(weight.theirs)
        if not present:
            continue
        ours |= _as_ours(weight, own, state)
    unknown = [their for their in state if their not in used and not their.endswith(row.beside)]
    if unknown:
        raise ValueError(f"Decoder.load_theirs: state has {', '.join(sorted(unknown))}, which the model has not")
    return ours


def _as_ours(weight: Weight, own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What one entry of the table makes of their weights, by our names."""
    missing = [their for their in weight.theirs if their not in state]
    if missing:
        raise ValueError(f"Decoder.load_theirs: state lacks {', '.join(missing)}")
    sizes = [len(own[our]) for our in weight.ours]
    target = (sum(sizes), *own[weight.ours[0]].shape[1:])
    joined = torch.cat([state[their] for their in weight.theirs])
    if weight.change != "head by head" or len(joined) == target[0]:
        joined = CHANGES[weight.change][0](joined, sizes, weight.heads)
    if tuple(joined.shape) != target:
        raise ValueError(
            f"Decoder.load_theirs: {' and '.join(weight.theirs)} must make {target}, but {tuple(joined.shape)} came"
        )
    return dict(zip(weight.ours, joined.split(sizes), strict=True))


def their_state(name: str, model: Decoder) -> dict[str, Tensor]:
    """Return our state by their names."""
    own = model.state_dict()
    theirs: dict[str, Tensor] = {}
    for weight in weights(name, model):
        names = ("embedding.weight",) if weight.ours == HEAD and "head.weight" not in own else weight.ours
        if not set(names) <= set(own):
            continue
        sizes = [len(own[our]) for our in names]
        joined = CHANGES[weight.change][1](torch.cat([own[our] for our in names]), sizes, weight.heads)
        parts = joined.chunk(len(weight.theirs))
        theirs |= {
            their: part.clone(memory_format=torch.contiguous_format)
            for their, part in zip(weight.theirs, parts, strict=True)
        }
    return theirs
