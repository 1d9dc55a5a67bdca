"""Families of open models: their configurations as arguments of :class:`Decoder`, their weights by our names and back.

A family is a row: what stands where, how it reads its numbers off a configuration of ``transformers``, and which of
their weights are ours. A configuration that asks for more than the row has is refused by the field's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.ops.rope import Frequencies

NOT_BUILT = {
    "qwen3-next": "its linear attention (gated delta rule) is not in the attention room",
    "kimi-linear": "its linear attention (Kimi delta attention) is not in the attention room",
    "gemma-3n": "its streams (AltUp), per-layer embeddings and shared caches are not in the reference transformer",
    "deepseek-v4": "its compressed attention and hash routers are not in the reference transformer",
}
ACTIVATIONS = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
PLAIN = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}
LENGTHS = ("dynamic", "longrope")  # kinds of rotary angles that depend on how long the text is


def _swap_halves(w: Tensor, axis: int) -> Tensor:
    return torch.cat(w.chunk(2, axis)[::-1], axis)


def _deinterleave(w: Tensor, axis: int) -> Tensor:
    """Gate and u in turn along an axis, counted from the last, to all of u and then all gates."""
    gate, u = w.unflatten(axis, (-1, 2)).unbind(axis)
    return torch.cat([u, gate], axis)


def _interleave(w: Tensor, axis: int) -> Tensor:
    u, gate = w.chunk(2, axis)
    return torch.stack([gate, u], axis).flatten(axis - 1, axis)


def _identity(w: Tensor) -> Tensor:
    return w


# from their tensors, joined, to ours, joined; and back
CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "same": (_identity, _identity),
    "transposed": (lambda w: w.mT, lambda w: w.mT),
    "gate first": (lambda w: _swap_halves(w, 0), lambda w: _swap_halves(w, 0)),
    "in turn, transposed": (lambda w: _deinterleave(w.mT, -2), lambda w: _interleave(w, -2).mT),
    "in turn": (lambda w: _deinterleave(w, -1), lambda w: _interleave(w, -1)),
}


class Weight(NamedTuple):
    """Tensors of ours, joined along their rows, that are tensors of theirs, joined and changed."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    change: str = "same"


@dataclass(frozen=True)
class Family:
    """One row: the configuration's ``model_type``, arguments, and weights outside of and in each layer."""

    model_type: str
    arguments: Callable[[Any], dict[str, Any]]
    outside: tuple[Weight, ...]
    prefix: str
    inside: tuple[Weight, ...]
    wanted: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()


def _one(ours: str, theirs: str, change: str = "same") -> Weight:
    return Weight((ours,), (theirs,), change)


def _linears(pairs: Mapping[str, str], ends: tuple[str, ...] = ("weight", "bias")) -> tuple[Weight, ...]:
    return tuple(_one(f"{our}.{end}", f"{their}.{end}") for our, their in pairs.items() for end in ends)


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
}


def family(name: str) -> Family:
    """Return a row; a family that is not built is refused with the reason."""
    if isinstance(name, str) and name in NOT_BUILT:
        raise ValueError(
            f"Decoder.like: {name!r} is not built: {NOT_BUILT[name]}; those that are: {', '.join(FAMILIES)}"
        )
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


def weights(name: str, depth: int) -> list[Weight]:
    """Return all rows of weights by their whole names."""
    row = family(name)
    layers = [
        Weight(
            tuple(f"layers.{i}.{our}" for our in w.ours),
            tuple(f"{row.prefix}{i}.{their}" for their in w.theirs),
            w.change,
        )
        for i in range(depth)
        for w in row.inside
    ]
    return [*row.outside, *layers]


def our_state(name: str, depth: int, own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state of theirs by our names; one that lacks or has other weights is refused by their names."""
    row = family(name)
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    for weight in weights(name, depth):
        present = set(weight.ours) <= set(own)
        if present or weight.ours == HEAD:  # the embedding is the head where there is none
            used.update(weight.theirs)
        if not present:
            continue
        missing = [their for their in weight.theirs if their not in state]
        if missing:
            raise ValueError(f"Decoder.load_theirs: state lacks {', '.join(missing)}")
        joined = CHANGES[weight.change][0](torch.cat([state[their] for their in weight.theirs]))
        sizes = [len(own[our]) for our in weight.ours]
        wanted = (sum(sizes), *own[weight.ours[0]].shape[1:])
        if tuple(joined.shape) != wanted:
            raise ValueError(
                f"Decoder.load_theirs: {' and '.join(weight.theirs)} must make {wanted}, but {tuple(joined.shape)} came"
            )
        ours |= dict(zip(weight.ours, joined.split(sizes), strict=True))
    unknown = [their for their in state if their not in used and not their.endswith(row.beside)]
    if unknown:
        raise ValueError(f"Decoder.load_theirs: state has {', '.join(sorted(unknown))}, which the model has not")
    return ours


def their_state(name: str, depth: int, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our state by their names."""
    theirs: dict[str, Tensor] = {}
    for weight in weights(name, depth):
        names = ("embedding.weight",) if weight.ours == HEAD and "head.weight" not in own else weight.ours
        if not set(names) <= set(own):
            continue
        joined = CHANGES[weight.change][1](torch.cat([own[our] for our in names]))
        parts = joined.chunk(len(weight.theirs))
        theirs |= {
            their: part.clone(memory_format=torch.contiguous_format)
            for their, part in zip(weight.theirs, parts, strict=True)
        }
    return theirs
