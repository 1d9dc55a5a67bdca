"""A reference transformer: embeddings, layers on a residual stream, logits; placement, norm and core are names."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.layers import Linear
from normkit.ops.rope import Frequencies, Turns, turns
from normkit.residual.norms import NormName, make_norm
from normkit.residual.stream import refuse_unknown, wiring_of
from normkit.transformer import like
from normkit.transformer.attention import (
    Attention,
    KeysValues,
    LayerCache,
    cores,
    find_core,
    keeps_keys,
    reads_others,
    require,
    restore_cache,
)
from normkit.transformer.layer_input import LayerInputs
from normkit.transformer.transformer_layer import TransformerLayer, reset_parts, to_sphere

COMMON = {"placement", "dim", "layer", "depth", "layer_inputs"}
SUBLAYER_NAMES = ("attention", "cross_attention", "feedforward", "layer_input")
Cache = list[LayerCache]
Window = int | None | Sequence[int | None]


class Transformer(nn.Module):
    """Embed, pass through the layers, normalize: what :class:`Encoder` and :class:`Decoder` share.

    Args:
        vocab: how many tokens there are; None where the input is features already, (B, T, dim).
        dim, depth, heads: features of the stream, layers, heads of a layer.
        hidden: features inside the feedforward, 4 * dim by default.
        placement, norm: where norms stand, by name; which norm, by name or as a function of the width.
        positions: ``"rope"``, ``"learned"`` or None. Cores that turn queries and keys by themselves, as ``rnope`` does,
            are not fed turned ones.
        length: the most positions; needed for learned ones.
        rotary_base: the base of the rotary angles.
        frequencies: several :class:`normkit.ops.rope.Frequencies` in their place, as a list, dealt out to the layers
            in turn.
        window: how many positions back a query sees, itself included, None for all; several are dealt out to the
            layers in turn.
        scale_embedding: multiply embeddings by sqrt(dim).
        embedding_norm, final_norm: normalize before the first, after the last layer; None leaves it to the placement.
        layer_inputs: each layer has an input of so many features of each token by itself, made of its embedding, and
            of a table with ``layer_vocab`` rows (default: vocab), row 0 for tokens beyond (Gemma 3n).
        each: arguments of layers, dealt out to them in turn in the place of the shared ones.
        std: all matrices but those of cores start normal with it, biases zero; None: linears start as torch has them.
        scale_outputs: with ``std``, the last matrix of each sublayer starts smaller, by sqrt(2 depth).
        **layer: further arguments of :class:`TransformerLayer`, the placement's options among them.

    State: ``embedding.weight`` (vocab, dim), ``positions.weight`` (length, dim), ``embedding_norm``, ``layers.I``,
        ``norm``; ``expansion`` and ``collapse`` where a placement learns to make a wider stream, and one vector of it;
        ``layer_inputs`` with ``embedding``, ``projection`` and ``norm``.
    """

    # pickles of before they came have none
    frequencies: tuple[Frequencies, ...] | None = None
    std: float | None = None
    scale_outputs = False

    def __init__(
        self,
        *,
        vocab: int | None,
        dim: int,
        depth: int,
        heads: int,
        hidden: int | None = None,
        placement: str = "pre-norm",
        norm: NormName = "layernorm",
        positions: str | None = "rope",
        length: int | None = None,
        rotary_base: float = 10000.0,
        frequencies: Sequence[Frequencies] | None = None,
        window: Window = None,
        layer_inputs: int | None = None,
        layer_vocab: int | None = None,
        each: Sequence[Mapping[str, Any]] | None = None,
        scale_embedding: bool = False,
        embedding_norm: bool | None = None,
        final_norm: bool | None = None,
        std: float | None = None,
        scale_outputs: bool = False,
        **layer: Any,
    ):
        super().__init__()
        self.dim, self.length = check.size(self, "dim", dim), length
        self.rotary_base = check.number(self, "rotary_base", rotary_base, 0.0, open_low=True)
        self.embedding_scale = math.sqrt(dim) if scale_embedding else 1.0
        self._refuse_unknown(placement, layer)
        shared: dict[str, Any] = {"placement": placement, "dim": dim, "heads": heads, "norm": norm, **layer}
        shared |= {"hidden": 4 * dim if hidden is None else hidden, "layer_inputs": layer_inputs}
        self.layers = self._build_layers(shared, depth, window, each)
        self.embedding = None if vocab is None else nn.Embedding(check.size(self, "vocab", vocab), dim)
        self._add_positions(positions, frequencies)
        self._check_keys()
        self._add_ends(functools.partial(make_norm, self, norm, dim), embedding_norm, final_norm)
        self._add_layer_inputs(layer_inputs, layer_vocab, norm)
        self.std = None if std is None else check.number(self, "std", std, 0.0)
        self.scale_outputs = scale_outputs
        self._start()

    def _refuse_unknown(self, placement: str, layer: Mapping[str, Any]) -> None:
        """Refuse arguments of layers that neither these nor the placement have."""
        options = [name for name in layer if name not in inspect.signature(TransformerLayer).parameters]
        known = wiring_of(self, placement).options
        refuse_unknown(self, placement, known, options, [type(self), Transformer, TransformerLayer])

    def _build_layers(
        self, shared: Mapping[str, Any], depth: int, window: Window, each: Sequence[Mapping[str, Any]] | None
    ) -> nn.ModuleList:
        """The layers, to which windows and arguments of their own are dealt out in turn."""
        windows, own = self._windows(window), self._each(each)
        return nn.ModuleList(
            TransformerLayer(
                **{**shared, "window": windows[i % len(windows)], **own[i % len(own)]}, layer=i, depth=depth
            )
            for i in range(check.size(self, "depth", depth))
        )

    def _windows(self, window: Window) -> list[int | None]:
        """The windows that are dealt out to the layers."""
        window = check.plain(window)
        wanted = f"{type(self).__name__}: window must be a number, None or one or more of them"
        if window is not None and not isinstance(window, int | Iterable):
            raise TypeError(f"{wanted}, not {window!r}")
        windows = [window] if window is None or isinstance(window, int) else list(window)
        if not windows:
            raise ValueError(f"{wanted}, not []")
        return windows

    def _add_positions(self, positions: str | None, frequencies: Sequence[Frequencies] | None) -> None:
        """Let queries and keys be turned by their positions, or learn a vector of each."""
        self.rope = check.choice(self, "positions", positions, ("rope", "learned", None)) == "rope"
        self.frequencies = None if frequencies is None else self._frequencies(frequencies)
        if self.rope and self._turned() % 2:
            raise ValueError(f"{type(self).__name__}: rotary positions turn pairs; head_dim={self._turned()} is odd")
        self.positions = nn.Embedding(self._length(), self.dim) if positions == "learned" else None

    def _add_ends(self, make: Callable[[], nn.Module], before: bool | None, after: bool | None) -> None:
        """Add what stands before the first layer and behind the last, as the placement has it where nothing is said."""
        last = self.layer(-1)
        self.embedding_norm = make() if (last.own_wiring.embedding_norm if before is None else before) else None
        self.norm = make() if (last.own_wiring.final_norm if after is None else after) else None
        ends = {"collapse": last.form.collapse(last.place, make), "expansion": last.form.expansion(last.place)}
        for name, end in ends.items():
            if end is not None:
                setattr(self, name, end)

    def layer(self, index: int) -> TransformerLayer:
        """Return a layer by its number."""
        return cast(TransformerLayer, self.layers[index])

    def _check_keys(self) -> None:
        """Require that layers whose keys are another's come after it, and cut and turn heads as it does."""
        for index in range(len(self.layers)):
            of = self.layer(index).keys_of
            if of is None:
                continue
            name = f"{type(self).__name__}: keys_of={of} of layer {index} must name an earlier layer"
            own, other = self.layer(index).attention, self.layer(of).attention if of < index else None
            if not isinstance(other, Attention) or other.keys_of is not None or not hasattr(other, "key"):
                raise ValueError(f"{name} that projects keys and values of its own")
            if (own.cut, own.kv_heads) != (other.cut, other.kv_heads):
                raise ValueError(f"{name} with kv_heads={own.kv_heads} and head_dim={own.head_dim}")
            require(type(other.core), keeps_keys, f"queries of another layer, as keys_of={of} of layer {index} wants")
            (rule, words), (other_rule, others) = self._turning(index), self._turning(of)
            if rule != other_rule:
                raise ValueError(f"{name} that turns keys by {words}, not by {others}")

    def _turning(self, index: int) -> tuple[Any, str]:
        """The rule by which a layer turns queries and keys, None where that is left to its core, and it in words."""
        attention = self.layer(index).attention
        if not self.rope or not attention.turned:
            return None, "its core"
        rule, words = (attention.rotary, attention.turned), f"rotary={attention.rotary!r}, {attention.turned} features"
        if self.frequencies is None:
            return rule, words
        place = index % len(self.frequencies)
        return (*rule, self.frequencies[place]), f"{words}, frequencies[{place}]"

    def _each(self, each: Any) -> list[Mapping[str, Any]]:
        """Require dictionaries of arguments that layers may differ in; without any they differ in nothing."""
        if each is None:
            return [{}]
        name = f"{type(self).__name__}: each"
        if not isinstance(each, Sequence) or not each or not all(isinstance(own, Mapping) for own in each):
            raise TypeError(f"{name} must be a sequence of one dictionary of arguments or more, not {each!r}")
        for own in each:
            for argument in COMMON.intersection(own):
                raise ValueError(f"{name} has {argument!r}, which all layers share")
        return list(each)

    def _frequencies(self, frequencies: Any) -> tuple[Frequencies, ...]:
        """Require angles for rotary positions, none of them of more pairs than a head has."""
        name = f"{type(self).__name__}: frequencies"
        if not self.rope:
            raise ValueError(f"{name} are of rotary positions; positions must be 'rope'")
        several = tuple(frequencies) if isinstance(frequencies, Sequence) else ()
        if not several or not all(isinstance(one, Frequencies) for one in several):
            raise TypeError(f"{name} must be a sequence of one Frequencies or more, not {frequencies!r}")
        most = max(len(one.values) for one in several)
        if most > self._turned() // 2:
            raise ValueError(f"{name} turn {most} pairs, but a head has {self._turned()} features")
        return several

    def _length(self) -> int:
        if self.length is None:
            raise ValueError(
                f"{type(self).__name__}: positions='learned' need a length, the most positions there can be"
            )
        return check.size(self, "length", self.length)

    @torch.no_grad()
    def _add_layer_inputs(self, width: int | None, vocab: int | None, norm: NormName) -> None:
        """Add what gives every layer an input of its own; its tokens are by default those of the embedding."""
        if width is not None:
            own = None if self.embedding is None else self.embedding.num_embeddings if vocab is None else vocab
            self.layer_inputs = LayerInputs(self.dim, len(self.layers), width, own, norm=norm)
        elif vocab is not None:
            raise ValueError(f"{type(self).__name__}: layer_vocab={vocab} is of layer_inputs, which are None")

    def init_weights(self) -> None:
        """Start every parameter anew, as the constructor does: for a model that was made on the meta device.

        >>> with torch.device("meta"):
        ...     model = Decoder(vocab=11, dim=8, depth=2, heads=2)
        >>> model.to_empty(device="cpu").init_weights()

        ``reset_parameters`` of a single part knows no ``std`` and no rule of the placement.
        """
        reset_parts(self)
        for layer in self.layers:
            cast(TransformerLayer, layer)._start_as_placed()
        self._start()
        self.normalize_weights()

    def _start(self) -> None:
        """Draw the embeddings, and the matrices if asked to."""
        own = getattr(self, "layer_inputs", None)
        for table in (self.embedding, self.positions, own and own.embedding):
            if table is not None:
                nn.init.normal_(table.weight, std=0.02 if self.std is None else self.std)
        if self.std is not None:
            self._draw_matrices(self.std, self.scale_outputs)

    def _draw_matrices(self, std: float, scale_outputs: bool) -> None:
        """Draw the matrices of the layers from one normal law."""
        if self.layer(-1).own_wiring.init is not None:
            name = self.layer(-1).placement
            raise ValueError(
                f"{type(self).__name__}: placement {name!r} starts its matrices by a rule; std must be None"
            )
        if hasattr(self, "layer_inputs"):
            nn.init.normal_(self.layer_inputs.projection.weight, std=std)
        for name, parameter in self.layers.named_parameters():
            parts = name.split(".")
            if parts[1] not in SUBLAYER_NAMES or any(part == "core" or part.endswith("norm") for part in parts):
                continue  # cores, norms and what connects a sublayer to the stream start as they want
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                last = scale_outputs and parts[-2] == ("down" if parts[1] == "feedforward" else "output")
                nn.init.normal_(parameter, std=std / math.sqrt(2 * len(self.layers)) if last else std)

    @restore_cache
    def encode(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Map tokens (B, T), or features (B, T, dim), to the last hidden state (B, T, dim).

        ``positions`` (B, T) is where tokens stand, from 0; None: behind those of the cache, one by one.
        """
        past = 0 if cache is None else self._past(cache)
        positions = self._positions(self._check_inputs(inputs), past, positions, mask)
        x = inputs if self.embedding is None else self.embedding(inputs) * self.embedding_scale
        x = x if self.positions is None else x + self.positions(positions)
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        angles = self._angles_in_turn(positions)
        form, expansion = self.layer(-1).form, getattr(self, "expansion", None)
        stream = form.expand(x, self.layer(-1).place, expansion)
        further = self._further(x, inputs)
        for index, layer in enumerate(self.layers):
            kept, turned = None if cache is None else cache[index], angles[index % len(angles)]
            stream = layer(stream, mask, kept, turned, memory, memory_mask, **further[index])
        return form.end(stream, getattr(self, "collapse", None), self._normalize)

    def _further(self, x: Tensor, inputs: Tensor) -> list[dict[str, Any]]:
        """What only some layers take, by their numbers: tokens, inputs of their own, keys that they share."""
        further: list[dict[str, Any]] = [{} for _ in self.layers]
        lent = {self.layer(i).keys_of: KeysValues() for i in range(len(self.layers))}
        own = self.layer_inputs(x, inputs) if hasattr(self, "layer_inputs") else None
        for index, arguments in enumerate(further):
            layer = self.layer(index)
            if layer.reads_numbers:
                arguments["numbers"] = inputs
            if own is not None:
                arguments["layer_input"] = own[index]
            lender = index if layer.keys_of is None else layer.keys_of
            if lender in lent:
                arguments["lent"] = lent[lender]
        return further

    def _normalize(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)

    def _check_inputs(self, inputs: Tensor) -> Tensor:
        if self.embedding is None:
            check.features_last(self, inputs, self.dim, "inputs")
            check.shape(self, "inputs", inputs, (None, None, self.dim))
        else:
            check.index(self, "inputs", inputs, (None, None), self.embedding.num_embeddings, self.embedding.weight)
        return inputs

    def _past(self, cache: Cache) -> int:
        """How many tokens a cache has; it must be of as many layers as the model."""
        several = isinstance(cache, list | tuple)
        if not several or len(cache) != len(self.layers):
            came = f"one of {len(cache)}" if several else f"a {type(cache).__name__}"
            raise ValueError(f"{type(self).__name__}: cache must be a list of {len(self.layers)} layers, not {came}")
        return cache[0].length

    def _positions(self, inputs: Tensor, past: int, positions: Tensor | None, mask: Any) -> Tensor:
        if positions is not None:
            check.index(self, "positions", positions, inputs.shape[:2], self.length, inputs)
            if positions.numel() and type(positions) is Tensor and check.readable(positions):
                self._check_counts(positions, past, mask)
            return positions
        end = past + inputs.shape[1]
        if self.length is not None and end > self.length:
            raise ValueError(f"{type(self).__name__}: inputs end at position {end}, but length={self.length}")
        return torch.arange(past, end, device=inputs.device)

    def _check_counts(self, positions: Tensor, past: int, mask: Any) -> None:
        """Require positions that a core which counts tokens itself keeps: a text may begin later, by whole blocks.

        With a mask of pairs they are not looked at, since a row may have several texts.
        """
        cores = [core for layer in self.layers if (core := getattr(layer.attention, "core", None)) is not None]
        turning = {core.card.name for core in cores if core.turns}
        blocks = {core.block: core.card.name for core in cores if getattr(core, "block", None)}
        sizes = (positions.shape[0], past + positions.shape[1])
        of_keys = isinstance(mask, Tensor) and mask.dtype is torch.bool and mask.shape == sizes
        if not (turning or blocks) or not (mask is None or of_keys):
            return
        moved = torch.arange(past, sizes[1], device=positions.device) - positions
        seen = torch.ones_like(moved, dtype=torch.bool) if mask is None else mask[:, past:]
        gaps = seen & (moved != moved.gather(1, seen.int().argmax(1, keepdim=True)))
        if turning and gaps.any():
            raise ValueError(
                f"{type(self).__name__}: positions must go up one by one, since core {turning.pop()!r} counts tokens "
                f"itself, but those of text {int(gaps.any(1).int().argmax())} do not"
            )
        for block, name in blocks.items():
            wrong = moved[seen & (moved % block != 0)].tolist()
            if wrong:
                raise ValueError(
                    f"{type(self).__name__}: positions, and padding before a text, must move it by a multiple of "
                    f"{block} tokens, since core {name!r} cuts blocks of so many, not by {wrong[0]}"
                )

    def _angles(self, positions: Tensor) -> Turns | None:
        return turns(positions, self._turned(), self.rotary_base) if self.rope and self._turned() else None

    def _angles_in_turn(self, positions: Tensor) -> list[Turns | None]:
        """The angles that are dealt out to the layers, for positions (T,), or (B, T), which are of all heads."""
        positions = positions.unsqueeze(1) if positions.dim() == 2 else positions
        if not self.rope or self.frequencies is None:
            return [self._angles(positions)]
        return [one.turns(positions, self._turned()) for one in self.frequencies]

    def _turned(self) -> int:
        """How many features of a query's head the positions turn; 0 where no layer turns any."""
        each = {self.layer(i).attention.turned for i in range(len(self.layers))} - {0}
        if self.rope and len(each) > 1:
            numbers = ", ".join(map(str, sorted(each)))
            raise ValueError(f"{type(self).__name__}: rotary positions turn one number of features, not {numbers}")
        return max(each, default=0)

    @torch.no_grad()
    def normalize_weights(self) -> None:
        """Bring matrices and embeddings back to the unit sphere where the placement wants that (nGPT); else do nothing.

        To be called once before training and after every optimizer step; under DDP and FSDP2 too.
        """
        for layer in self.layers:
            layer.normalize_weights()  # type: ignore[operator]
        if self.layer(0).on_a_sphere:
            for table in self._tables():
                to_sphere(table, 1)

    def _tables(self) -> list[Tensor]:
        return [] if self.embedding is None else [self.embedding.weight]


class Encoder(Transformer):
    """Let every position read every other: tokens (B, T) to hidden states (B, T, dim), as BERT or a ViT does.

        >>> model = Encoder(vocab=11, dim=8, depth=2, heads=2, placement="post-norm")
        >>> model(torch.zeros(3, 5, dtype=torch.int64)).shape
        torch.Size([3, 5, 8])

    Args: see :class:`Transformer`; with ``vocab=None`` the input is features (B, T, dim), such as an image's patches.
    """

    def __init__(self, *, vocab: int | None, dim: int, depth: int, heads: int, **arguments: Any):
        super().__init__(vocab=vocab, dim=dim, depth=depth, heads=heads, **{"causal": False, **arguments})
        self.normalize_weights()

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode ``inputs``; ``mask`` (B, T) is True where a position may be read."""
        return self.encode(inputs, mask)


class Decoder(Transformer):
    """Predict each next token from those before it: tokens (B, T) to logits (B, T, vocab), as GPT or Llama does.

        >>> model = Decoder(vocab=11, dim=8, depth=2, heads=2, placement="peri-norm", norm="rmsnorm")
        >>> model(torch.zeros(3, 5, dtype=torch.int64)).shape
        torch.Size([3, 5, 11])

    Args: those of :class:`Transformer`, and
        tied: the embedding's table gives the logits too; else ``head.weight`` (vocab, dim) does.
        logit_softcap: logits z become softcap * tanh(z / softcap).

    In nGPT the logits are multiplied by ``logit_scale`` (vocab,), which starts at 1, stored as base_scale.
    """

    family: str | None = None

    def __init__(
        self,
        *,
        vocab: int,
        dim: int,
        depth: int,
        heads: int,
        tied: bool = True,
        logit_softcap: float | None = None,
        **arguments: Any,
    ):
        super().__init__(vocab=check.size(self, "vocab", vocab), dim=dim, depth=depth, heads=heads, **arguments)
        self.head = None if tied else Linear(dim, vocab, bias=False)
        cap = logit_softcap
        self.logit_softcap = None if cap is None else check.number(self, "logit_softcap", cap, 0.0, open_low=True)
        self.base_scale = self.layer(0).base_scale
        stored = torch.full((vocab,), self.base_scale)
        self.logit_scale = nn.Parameter(stored) if self.layer(0).on_a_sphere else None
        self._start_head()

    def init_weights(self) -> None:  # noqa: D102
        super().init_weights()
        self._start_head()

    def _start_head(self) -> None:
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=0.02 if self.std is None else self.std)
        self.normalize_weights()

    def reset_parameters(self) -> None:
        """Start its own ``logit_scale`` anew; layers, embedding and head start theirs."""
        if self.logit_scale is not None:
            nn.init.constant_(self.logit_scale, self.base_scale)

    @restore_cache
    def forward(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of the token after each position.

        ``mask`` is True where a position may be read: (B, S), (1, T, S), or four axes that broadcast to
        (B, heads, T, S). With a ``cache`` (:meth:`empty_cache`) the inputs go on where it ends, and are added to it; S
        counts what it has. A decoder with ``cross`` also reads ``memory`` (B, S, dim), the states of an
        encoder, where ``memory_mask`` (B, S) is True. ``positions`` (B, T) is where tokens stand, from 0; padding
        before a text counts unless they leave it out.
        """
        x = self.encode(inputs, mask, cache, memory, memory_mask, positions)
        logits = F.linear(x, self._tables()[-1].to(x.dtype)) if self.head is None else self.head(x)
        if self.logit_scale is not None:
            logits = logits * (self.logit_scale / self.base_scale).to(logits.dtype)
        cap = self.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _tables(self) -> list[Tensor]:
        return super()._tables() + ([] if self.head is None else [self.head.weight])

    @classmethod
    def like(cls, name: str, config: Any) -> Decoder:
        """Build the model of a family from its configuration of ``transformers``: the same wiring, the same numbers.

        Args:
            name: ``"gpt-2"``, ``"llama"``, ``"olmo-3"``, ``"gpt-oss"``, ``"glm"``, ``"qwen3-next"``,
                ``"kimi-linear"``, ``"deepseek-v4"`` or ``"gemma-3n"``.
            config: such as ``transformers.LlamaConfig(...)``; of Gemma 3n that of its text. Dropout is left out; what
                the family's row has not is refused by its name.

        Weights are drawn. :meth:`load_theirs` takes those of a model of theirs, :meth:`their_state` gives ours back.
        """
        model = cls(**like.arguments(name, config))
        model.family = name
        return model

    @torch.no_grad()
    def load_theirs(self, state: Mapping[str, Tensor]) -> None:
        """Take the weights of a model of ``transformers``, its ``state_dict()``, into one built by :meth:`like`."""
        self.load_state_dict(like.our_state(self._family(), self, state))

    def their_state(self) -> dict[str, Tensor]:
        """Return the weights of a model built by :meth:`like` as the ``state_dict()`` of ``transformers``."""
        return like.their_state(self._family(), self)

    def _family(self) -> str:
        if self.family is None:
            raise ValueError("Decoder: it is of no family; build it by Decoder.like(name, config)")
        return self.family

    def empty_cache(self) -> Cache:
        """Return a cache for :meth:`forward`: each layer's past, as its core keeps it."""
        return [layer.empty_cache() for layer in self.layers]  # type: ignore[operator]

    @torch.no_grad()
    def generate(
        self,
        inputs: Tensor,
        count: int,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        cached: bool = True,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Continue tokens (B, T) by ``count`` drawn ones, the likeliest where ``temperature`` is 0: (B, T + count).

        ``cached=False`` reads everything anew for each token, for cores that cannot go on from a past. ``mask`` (B, T)
        is False at padding before shorter texts, which then takes no positions.
        """
        check.number(self, "temperature", temperature, 0.0)
        if not self._check_inputs(inputs).shape[1]:
            shape = tuple(inputs.shape)
            raise ValueError(f"Decoder: inputs must have at least one token to go on from, but their shape is {shape}")
        self._check_padding(mask, inputs)
        cache, new = self.empty_cache() if cached else None, inputs
        for _ in range(check.size(self, "count", count, least=0)):
            new = new if cached else inputs
            at = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)[:, -new.shape[1] :]
            logits = self(new, mask, cache, memory, memory_mask, at)[:, -1]
            if temperature:
                below = logits.float() - logits.float().amax(-1, keepdim=True)  # the largest is 0, which no T overflows
                chances = torch.softmax(below / max(temperature, torch.finfo(below.dtype).tiny), -1)
                new = torch.multinomial(chances, 1, generator=generator)
            else:
                new = logits.argmax(-1, keepdim=True)
            inputs = torch.cat([inputs, new], 1)
            mask = None if mask is None else F.pad(mask, (0, 1), value=True)
        return inputs

    def _check_padding(self, mask: Tensor | None, inputs: Tensor) -> None:
        """Require a mask whose texts end with a token that counts, since that is what they go on from."""
        if mask is None:
            return
        check.mask(self, "mask", mask, inputs.shape, inputs)
        if not mask[:, -1].all():
            raise ValueError("Decoder: mask must be True at each text's last token; put padding before texts")


class EncoderDecoder(nn.Module):
    """Translate: read a source (B, S), predict each next token of a target (B, T), as the first transformer and T5 do.

        >>> model = EncoderDecoder(vocab=11, dim=8, encoder_depth=3, decoder_depth=2, heads=2, placement="deepnorm")
        >>> source, target = torch.zeros(3, 7, dtype=torch.int64), torch.zeros(3, 5, dtype=torch.int64)
        >>> model(source, target).shape
        torch.Size([3, 5, 11])

    Each decoder layer reads the encoder's last states in a third sublayer, wired as its attention is. Placements that
    depend on depth know of both stacks (DeepNorm's constants, Fixup's branches).

    Args:
        vocab, source_vocab: how many tokens a target has, and a source (default: as many); each has its own table.
        dim, heads: features of the streams, heads of a layer.
        encoder_depth, decoder_depth: layers of each.
        cross, cross_options: the core by which the decoder reads the encoder, and its further arguments.
        tied, logit_softcap: as in :class:`Decoder`.
        **arguments: further ones of :class:`Transformer`, for both.

    State: ``encoder``, ``decoder``. For a source of features, such as sound, let a ``Decoder(cross="softmax")`` read
    what an ``Encoder(vocab=None)`` returns.
    """

    def __init__(
        self,
        *,
        vocab: int,
        dim: int,
        encoder_depth: int,
        decoder_depth: int,
        heads: int,
        source_vocab: int | None = None,
        cross: str = "softmax",
        cross_options: Mapping[str, Any] | None = None,
        tied: bool = True,
        logit_softcap: float | None = None,
        **arguments: Any,
    ):
        super().__init__()
        if not isinstance(cross, str) or not reads_others(find_core(self, "cross", cross).card.entry):
            check.choice(self, "cross", cross, [name for name, core in cores().items() if reads_others(core)])
        shared: dict[str, Any] = {"dim": dim, "heads": heads, **arguments}
        self.encoder = Encoder(
            vocab=vocab if source_vocab is None else source_vocab,
            depth=encoder_depth,
            other_depth=decoder_depth,
            **shared,
        )
        self.decoder = Decoder(
            vocab=vocab,
            depth=decoder_depth,
            other_depth=encoder_depth,
            cross=cross,
            cross_options=cross_options,
            tied=tied,
            logit_softcap=logit_softcap,
            **shared,
        )

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits of the token after each position of ``target``; masks are True where one may be read."""
        return self.decoder(target, target_mask, None, self.encoder(source, source_mask), source_mask)

    @torch.no_grad()
    def generate(
        self, source: Tensor, target: Tensor, count: int, *, source_mask: Tensor | None = None, **drawing: Any
    ) -> Tensor:
        """Continue ``target`` (B, T), the mark of a beginning at least, as :meth:`Decoder.generate` does."""
        memory = self.encoder(source, source_mask)
        return self.decoder.generate(target, count, memory=memory, memory_mask=source_mask, **drawing)
