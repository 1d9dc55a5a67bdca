"""The transformer layer in which placement, norm and attention core are three independent names."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.catalog import method
from normkit.kinds import LAYER
from normkit.ops.rope import Turns
from normkit.residual.norms import NormName, make_norm
from normkit.residual.stream import PLACEMENTS, Stream, placements
from normkit.statistics import accurate
from normkit.transformer.attention import (
    Attention,
    FeedForward,
    KeysValues,
    LayerCache,
    LinearName,
    check_kind,
    find_core,
    require,
    restore_cache,
    takes,
)
from normkit.transformer.compressed import CompressedAttention
from normkit.transformer.delta import DeltaNet
from normkit.transformer.latent import LatentAttention
from normkit.transformer.layer_input import LayerInput
from normkit.transformer.moe import MixtureOfExperts

Mixer = DeltaNet | LatentAttention | CompressedAttention
MIXERS: dict[str, type[DeltaNet] | type[LatentAttention] | type[CompressedAttention]] = {
    "delta-net": DeltaNet,
    "latent": LatentAttention,
    "compressed": CompressedAttention,
}


@method(
    "transformer-layer",
    paper="Attention Is All You Need (Vaswani et al., 2017), arXiv 1706.03762",
    shape="B T C",
    over="C",
    inputs={"mask?": "B T : bool"},
    example={"placement": "pre-norm", "heads": 2, "hidden": 12},
)
class TransformerLayer(Stream):
    """Attend, then pass each position through a feedforward network, on a residual stream wired by a placement's name.

    For comparing placements, norms and attention cores in one frame, where nothing else differs. In a model of your own
    exchange the norms instead, by ``nk.swap``.

    Any combination that makes sense works. The placement, a method of the residual room, says where norms and scales
    stand and how the matrices start; with pre-norm, for example,

        x <- x + A(attention_norm(x))        A(x) = join(softmax(q kᵀ / sqrt(head_dim)) v) Woᵀ
        x <- x + F(feedforward_norm(x))      F(x) = down(act(up(x)))

    Args:
        placement: a placement by name, such as ``"pre-norm"`` or ``"mix-ln:alpha=0.5"``; an unknown one gets the list.
        dim: features of the stream.
        heads, kv_heads, head_dim: heads of the queries; of keys and values (default: as many); features of a head
            (default: dim / heads).
        hidden: features inside the feedforward.
        layer, depth: the layer's place in the model, from 0; how many there are.
        norm: a norm of the catalogue by name, or a function of the width.
        activation: ``"gelu"`` (exact), ``"gelu_tanh"``, ``"relu"``, ``"silu"``, ``"relu_squared"``, or gated:
            ``"swiglu"``, ``"geglu"``, ``"geglu_tanh"``, ``"limited_swiglu"``, ``"clamped_swiglu"``.
        feedforward: ``"mlp"``, or ``"moe"``: a mixture of experts, each of ``hidden`` features.
        router: of a mixture, a method of the router room with its arguments: ``"router:experts=8,top_k=2"``.
        feedforward_options: further arguments of the feedforward, of a mixture ``capacity``, ``shared``,
            ``shared_gate``, ``hashed``; else ``sparsity``, the share of hidden features that are cut to 0 (Gemma 3n).
        causal: position t sees positions s <= t.
        core, core_options: a method of the attention room by name, and its further arguments.
        query_key_norm: also normalize queries and keys, over each ``"head"`` or the full ``"width"``.
        value_norm: a norm of the values over the same, by name or as a function of the width; None: there is none.
        keys_of: attend to the keys and values of an earlier layer, by its number, and project none.
        window: how many positions back a query sees, itself included; None for all.
        rotary: ``"halves"`` or ``"pairs"``: which features are turned together, where ``angles`` are given.
        rotary_dim: how many features of a head are turned, the first ones; None for all.
        mixer: what positions read each other by: ``"attention"``, the memory of a ``"delta-net"``, or ``"latent"`` or
            ``"compressed"`` attention.
        mixer_options: the arguments of another mixer than attention, ``heads`` among them.
        bias: the linears have biases: True, False, or ``"attention"``, ``"feedforward"``, ``"query_key_value"``.
        linear: another kind of linear map by name, ``"sdd-linear"``, or a function of (inputs, outputs, bias=...).
        cross, cross_options: the core by which the layer reads the states of an encoder, in a third sublayer between
            the two, and its further arguments; None reads none.
        other_depth: how many layers the other stack of an encoder-decoder has.
        layer_inputs: the layer has an input of so many features by itself, ``layer_input`` (B, T, features), which acts
            after the feedforward; None: it has none.
        **options: the placement's own, such as ``alpha`` of mix-ln.

    ``layer(x, mask=None, cache=None, angles=None, memory=None, memory_mask=None)``: x (B, T, dim). The mask is True
    where a key is seen: (B, S), (1, T, S), or four axes that broadcast to (B, heads, T, S). A cache
    (``layer.empty_cache()``) holds the past and is extended; angles turn q and k. The memory (B, S, dim) is what
    ``cross`` reads, where its mask (B, S) is True.

    Attention Is All You Need (Vaswani et al., 2017), arXiv 1706.03762; the placements' papers stand on their own pages.
    """

    kind = LAYER

    def __init__(
        self,
        *,
        placement: str,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        activation: str = "gelu",
        feedforward: str = "mlp",
        router: str | None = None,
        feedforward_options: Mapping[str, Any] | None = None,
        causal: bool = True,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        core: str = "softmax",
        core_options: Mapping[str, Any] | None = None,
        query_key_norm: str | None = None,
        value_norm: NormName | None = None,
        keys_of: int | None = None,
        window: int | None = None,
        rotary: str = "halves",
        rotary_dim: int | None = None,
        mixer: str = "attention",
        mixer_options: Mapping[str, Any] | None = None,
        bias: bool | str = False,
        linear: LinearName = "linear",
        cross: str | None = None,
        cross_options: Mapping[str, Any] | None = None,
        other_depth: int = 0,
        layer_inputs: int | None = None,
        **options: Any,
    ):
        choice = catalog.choose(self, "placement", placement, *PLACEMENTS)
        super().__init__(choice, dim, layer, depth, options, 2 if cross is None else 3, other_depth)
        wiring = self.own_wiring
        self.inside = wiring.hidden
        check.choice(self, "query_key_norm", query_key_norm, (None, "head", "width"))
        check.choice(self, "bias", bias, (False, True, "attention", "feedforward", "query_key_value"))
        scale = self._sphere_scale(core, heads, kv_heads, head_dim, keys_of)
        heads_of = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        attend = self._attention_maker(norm, query_key_norm, bias, linear=linear, **heads_of)
        own: dict[str, Any] = {
            "core": core,
            "core_options": {**_options("core_options", core_options), **scale},
            "window": window,
            "rotary": rotary,
            "rotary_dim": rotary_dim,
            "value_norm": value_norm,
            "keys_of": keys_of,
        }
        if check.choice(self, "mixer", mixer, ("attention", *MIXERS)) == "attention":
            if mixer_options:
                raise ValueError(f"TransformerLayer: mixer_options are of another mixer: {', '.join(MIXERS)}")
            self.attention = attend(causal=causal, **own)
        else:
            own |= {"kv_heads": kv_heads, "head_dim": head_dim, "query_key_norm": query_key_norm}
            options_of = {"heads": heads, "causal": causal, **_options("mixer_options", mixer_options)}
            self.attention = self._build_mixer(mixer, own, options_of, linear)  # type: ignore[assignment]
        self.cross_attention = None
        if cross is not None:
            further = _options("cross_options", cross_options)
            self.cross_attention = attend(causal=False, core=cross, core_options=further, crossed=True)
        activation = wiring.activation or activation
        inside = {"activation": activation, "bias": bias in (True, "feedforward")}
        inside |= _options("feedforward_options", feedforward_options)
        self.feedforward = self._build_feedforward(feedforward, router, hidden, linear, inside)
        for name, branch in wiring.branches(self.place).items():
            self.wire(name, branch, norm)
        if layer_inputs is not None:
            self._wire_layer_input(norm, LayerInput(dim, layer_inputs, activation=activation, linear=linear))
        self._wire_hidden(norm, hidden)
        self._start()

    def _attention_maker(
        self, norm: NormName, query_key_norm: str | None, bias: bool | str, **shared: Any
    ) -> Callable[..., Attention]:
        """Return what builds attention to the layer's own states or to an encoder's, as the placement wires both."""
        wiring = self.own_wiring
        return functools.partial(
            Attention,
            self.dim,
            norms=wiring.head_norms or (("query", "key") if query_key_norm else ()),
            norm=norm,
            norm_over=query_key_norm or "head",
            head_scale=wiring.head_scale,
            bias=bias in (True, "attention", "query_key_value"),
            output_bias=bias in (True, "attention"),
            place={"layer": self.place.layer, "depth": self.place.depth},
            **shared,
        )

    def _sphere_scale(
        self, core: str, heads: int, kv_heads: int | None, head_dim: int | None, keys_of: int | None
    ) -> dict[str, float]:
        """Queries and keys of unit length want their product multiplied by the root of the head's size."""
        if self.own_wiring.hidden != "scale":
            return {}
        name = f"TransformerLayer: placement {self.placement!r}"
        if self.place.sublayers == 3:
            able = ", ".join(other for other, wiring in placements().items() if wiring.hidden != "scale")
            raise ValueError(f"{name} has no cross-attention, cross must be None; those that do: {able}")
        kind = find_core(self, "core", core).card.entry
        require(kind, takes("scale"), f"scale, which placement {self.placement!r} sets")
        if kv_heads not in (None, heads):
            raise ValueError(f"{name} scales each query with its key; kv_heads must be {heads}, not {kv_heads}")
        if keys_of is not None:
            raise ValueError(f"{name} scales each query with its key; keys_of must be None, not {keys_of}")
        if head_dim is None:
            check.divides(self, "heads", check.size(self, "heads", heads), "dim", self.dim)
        return {"scale": math.sqrt(self.dim // heads if head_dim is None else head_dim)}

    def _build_mixer(self, mixer: str, other: Mapping[str, Any], options: dict[str, Any], linear: LinearName) -> Mixer:
        """Build what stands in the place of attention; it has no place for what a placement does inside attention."""
        name, build = f"TransformerLayer: mixer={mixer!r}", MIXERS[mixer]
        wiring = self.own_wiring
        if wiring.hidden is not None or wiring.init is not None or wiring.head_norms or wiring.head_scale:
            raise ValueError(f"{name}: placement {self.placement!r} reaches into attention; mixer must be 'attention'")
        for option, value in other.items():
            if value not in (self.card.signature.parameters[option].default, {}):
                raise ValueError(f"{name} takes no {option}; its arguments stand in mixer_options")
        takes = {k: p for k, p in inspect.signature(build).parameters.items() if k not in ("dim", "linear")}
        for option in options:
            check.choice(self, "mixer_options", option, tuple(takes))
        missing = [option for option, taken in takes.items() if taken.default is taken.empty and option not in options]
        if missing:
            raise ValueError(f"{name}: mixer_options must hold {', '.join(missing)}")
        return build(self.dim, linear=linear, **options)

    def _build_feedforward(
        self, feedforward: str, router: str | None, hidden: int, linear: LinearName, options: dict[str, Any]
    ) -> FeedForward | MixtureOfExperts:
        """Build the feedforward; a mixture has no place for what a placement does to hidden features or matrices."""
        check.choice(self, "feedforward", feedforward, ("mlp", "moe"))
        takes = inspect.signature(FeedForward if feedforward == "mlp" else MixtureOfExperts).parameters
        for option in options:
            check.choice(self, "feedforward_options", option, sorted({*takes} - {"dim", "hidden", "linear", "router"}))
        if feedforward == "mlp":
            if router is not None:
                raise ValueError(f"TransformerLayer: router={router!r} needs feedforward='moe'")
            return FeedForward(self.dim, hidden, linear=linear, **options)
        wiring = self.own_wiring
        if wiring.hidden is not None or wiring.init is not None or linear != "linear":
            reason = f"linear={linear!r}" if linear != "linear" else f"placement {self.placement!r}"
            raise ValueError(f"TransformerLayer: {reason} reaches into the feedforward, which must be 'mlp', not 'moe'")
        return MixtureOfExperts(self.dim, hidden, router=router, **options)  # type: ignore[arg-type]

    def _wire_layer_input(self, norm: NormName, sublayer: LayerInput) -> None:
        """Register what acts by the layer's own input, where the placement says how."""
        connection = self.own_wiring.layer_input
        if connection is None:
            able = ", ".join(name for name, wiring in placements().items() if wiring.layer_input is not None)
            raise ValueError(
                f"TransformerLayer: placement {self.placement!r} takes no layer_inputs; those that do: {able}"
            )
        self.layer_input = sublayer
        self.wire("layer_input", connection.at(self.place), norm)

    def _wire_hidden(self, norm: NormName, hidden: int) -> None:
        """Register what acts inside attention and feedforward."""
        if self.inside == "norm":
            self.feedforward_hidden_norm = make_norm(self, norm, hidden)
        elif self.inside == "shift":
            self.feedforward_hidden_shift = nn.Parameter(torch.zeros(1))
            self.feedforward_output_shift = nn.Parameter(torch.zeros(1))
        elif self.inside == "scale":
            width = self.attention.heads * self.attention.head_dim
            self.qk_scale = nn.Parameter(torch.full((width,), self.base_scale))
            self.uv_scale = nn.Parameter(torch.ones(2 * hidden))

    @property
    def on_a_sphere(self) -> bool:
        """Whether the stream moves on the unit sphere."""
        return self.branches["attention"].sphere is not None

    @property
    def base_scale(self) -> float:
        """What learned numbers are stored at there; 1 elsewhere."""
        sphere = self.branches["attention"].sphere
        return 1.0 if sphere is None else sphere

    def _start(self) -> None:
        """Let the matrices start as the placement wants them."""
        init = self.own_wiring.init
        if init is not None:
            for matrices in self._matrices():
                init(matrices, self.place)
        self.normalize_weights()

    def init_weights(self) -> None:
        """Start every parameter anew, as the placement wants it: for a layer that was made on the meta device."""
        reset_parts(self)
        self._start_as_placed()

    def _start_as_placed(self) -> None:
        """Let what its parts have started alone start as the placement wants it."""
        self._start_gains()
        self._start()

    def _matrices(self) -> list[dict[str, nn.Parameter]]:
        """The matrices of each sublayer by name, in the order that data meets them."""
        order = ("query", "key", "value", "output", "up", "down")
        return [
            {f"{name}.weight": getattr(part, name).weight for name in order if hasattr(part, name)}
            for part in (self.attention, self.cross_attention, self.feedforward)
            if part is not None
        ]

    @restore_cache
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        angles: Turns | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        numbers: Tensor | None = None,
        layer_input: Tensor | None = None,
        lent: KeysValues | None = None,
    ) -> Tensor:
        """Pass the stream through attention, that to ``memory`` where there is one, and feedforward.

        ``x`` is (B, T, dim), or what else the placement's stream is. The ``numbers`` (B, T) of the tokens are what a
        mixture with a table chooses experts by, the ``layer_input`` (B, T, features) is the layer's own, and ``lent``
        holds the keys and values that layers share.
        """
        part = self.form.check(self, x, self.place, (None, None))
        check_kind(self, cache, LayerCache)
        past, read = (None, None) if cache is None else (cache.past, cache.memory)
        shared = {} if lent is None else {"lent": lent}
        sublayers = {"attention": lambda h: self.attention(h, mask, past, angles, self._sphere(), **shared)}
        if self.cross_attention is not None:
            check.values(self, "memory", memory, (part.shape[0], None, self.dim), part)
            sublayers["cross_attention"] = functools.partial(
                self.cross_attention, mask=memory_mask, cache=read, memory=memory
            )
        elif memory is not None:
            raise ValueError("TransformerLayer: memory is given, but cross=None; cross='softmax' reads it")
        further = {"numbers": numbers} if self.reads_numbers else {}
        if isinstance(mask, Tensor) and mask.dim() == 2 and isinstance(self.feedforward, MixtureOfExperts):
            further["mask"] = mask[:, -part.shape[1] :]
        sublayers["feedforward"] = lambda h: self.feedforward(h, self._before, self._after, **further)
        if "layer_input" in self.branches:
            check.values(self, "layer_input", layer_input, (*part.shape[:2], self.layer_input.features), part)
            sublayers["layer_input"] = functools.partial(self.layer_input, given=layer_input)
        elif layer_input is not None:
            raise ValueError("TransformerLayer: layer_input is given, but layer_inputs=None")
        return self.carry(x, sublayers)

    @property
    def reads_numbers(self) -> bool:
        """Whether the numbers of the tokens must be handed in."""
        return getattr(self.feedforward, "table", None) is not None

    @property
    def keys_of(self) -> int | None:
        """The number of the layer whose keys and values it attends to; None: its own."""
        return getattr(self.attention, "keys_of", None)

    def empty_cache(self) -> LayerCache:
        """Return a cache for :meth:`forward`, to which the tokens of each call are added."""
        return LayerCache(self.attention.empty_cache())

    def _sphere(self) -> Tensor | None:
        """What queries and keys of unit length are multiplied by, (heads, head_dim)."""
        if self.inside != "scale":
            return None
        return (self.qk_scale / self.base_scale).view(self.attention.heads, self.attention.head_dim)

    def _before(self, h: Tensor) -> Tensor:
        """Act on the hidden features before the activation."""
        if self.inside == "shift":
            return h - self.feedforward_hidden_shift.to(h.dtype)
        return h * (self.uv_scale * math.sqrt(self.dim)).to(h.dtype) if self.inside == "scale" else h

    def _after(self, h: Tensor) -> Tensor:
        """Act on the hidden features after the activation."""
        if self.inside == "norm":
            return self.feedforward_hidden_norm(h)
        return h - self.feedforward_output_shift.to(h.dtype) if self.inside == "shift" else h

    @torch.no_grad()
    def normalize_weights(self) -> None:
        """Bring the matrices back to the unit sphere, where the placement wants that (nGPT); else do nothing.

        Rows of query, key, value and up, columns of output and down: the axis of the stream. To be called after every
        optimizer step, on the module itself (``model.module`` of DDP) or on parameters sharded by FSDP2.
        """
        if self.on_a_sphere:
            for matrices in self._matrices():
                *inner, last = matrices.values()
                for matrix in inner:
                    to_sphere(matrix, 1)
                to_sphere(last, 0)


def _options(name: str, value: Any) -> dict[str, Any]:
    """Further arguments of a part, none of them where there is nothing."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"TransformerLayer: {name} must be a dictionary of arguments, not {value!r}")
    return dict(value or {})


def reset_parts(module: nn.Module) -> None:
    """Let every part start its own parameters anew; those within others first, which may have other wishes for them."""
    for part in reversed(list(module.modules())):
        if reset := getattr(part, "reset_parameters", None):
            reset()


@torch.no_grad()
def to_sphere(matrix: Tensor, axis: int) -> None:
    """Divide a matrix in place by its lengths along ``axis``; a zero vector stays."""
    dtype, limits = accurate(matrix.new_empty(0)).dtype, torch.finfo(matrix.dtype)
    least = max(1e-12, limits.tiny * limits.eps)  # float16 has no number as small as the first
    matrix.div_(torch.linalg.vector_norm(matrix, dim=axis, keepdim=True, dtype=dtype).clamp(min=least).to(matrix.dtype))
