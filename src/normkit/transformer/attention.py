"""The two sublayers of a transformer layer: attention around a core of the attention room, and the feedforward."""

from __future__ import annotations

import functools
import inspect
import statistics
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog, check
from normkit.attention.core import AttentionCore, Recurrent, check_seen
from normkit.kinds import CORE
from normkit.layers import Linear
from normkit.ops.rope import PAIRINGS, Turns, rotate
from normkit.residual.norms import NormName, make_norm, show, watched
from normkit.residual.wiring import unit
from normkit.statistics import accurate, root
from normkit.transformer.gate import GATES, gated

LinearName = str | Callable[..., nn.Module]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def restore_cache(forward: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a call that fails, by whatever error or Ctrl-C, leave its ``cache`` as it was."""
    at = list(inspect.signature(forward).parameters).index("cache")

    @functools.wraps(forward)
    def call(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        cache: Any = args[at] if len(args) > at else named.get("cache")
        if cache is None:
            return forward(*args, **named)
        layers = cache if isinstance(cache, list | tuple) else (cache,)
        for layer in layers:
            check_kind(args[0], layer, Past)
        marks = [layer.mark() for layer in layers]
        try:
            return forward(*args, **named)
        except BaseException:
            for layer, mark in zip(layers, marks, strict=True):
                layer.rewind(mark)
            raise

    return call


class Past:
    """What a layer keeps of its past: of ``length`` tokens, which is a symbol where an export leaves that free."""

    length: int

    def __len__(self) -> int:
        return self.length


class KeysValues(Past):
    """The keys and values of a layer's past, (B, kv_heads, S, head_dim) each."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:  # type: ignore[override]
        """How many tokens there are."""
        return 0 if self.keys is None else self.keys.shape[2]

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; return all."""
        if self.keys is not None and self.values is not None:
            for kept, new in ((self.keys, keys), (self.values, values)):
                if kept.shape[1::2] != new.shape[1::2]:
                    raise ValueError(
                        f"cache has {kept.shape[1]} heads of {kept.shape[3]} features, but the layer has "
                        f"{new.shape[1]} of {new.shape[3]}; it must be of this model"
                    )
            keys, values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        self.keys, self.values = keys, values
        return keys, values

    def mark(self) -> int | None:
        """Return what :meth:`rewind` needs: how many there are, since to keep the tensors would keep them twice."""
        return None if self.keys is None else self.length

    def rewind(self, mark: int | None) -> None:
        """Drop what came after the mark."""
        self.keys, self.values = (
            None if z is None or mark is None else z[:, :, :mark] for z in (self.keys, self.values)
        )


class State(Past):
    """What a core of linear time keeps of a layer's past: of one size, however long that is."""

    def __init__(self) -> None:
        self.state: Any = None
        self.length = 0

    def mark(self) -> tuple[Any, int]:
        """Return what :meth:`rewind` needs."""
        return self.state, self.length

    def rewind(self, mark: tuple[Any, int]) -> None:
        """Go back to the mark."""
        self.state, self.length = mark


class LayerCache(Past):
    """What one layer keeps while tokens come one by one: its own past, and the keys and values of a memory it reads."""

    def __init__(self, past: Any):
        self.past = past
        self.memory = KeysValues()

    @property
    def length(self) -> int:  # type: ignore[override]
        """How many tokens there are."""
        return self.past.length

    def mark(self) -> tuple[Any, int | None]:
        """Return what :meth:`rewind` needs."""
        return self.past.mark(), self.memory.mark()

    def rewind(self, mark: tuple[Any, int | None]) -> None:
        """Go back to the mark."""
        self.past.rewind(mark[0])
        self.memory.rewind(mark[1])


def make_linear(owner: object, linear: LinearName, inputs: int, outputs: int, bias: bool) -> nn.Module:
    """Build a linear map: torch's, a method of the catalogue by name (``"sdd-linear"``), or by a function."""
    if not isinstance(linear, str):
        return linear(inputs, outputs, bias=bias)
    if linear == "linear":
        return Linear(inputs, outputs, bias=bias)
    takes = catalog.card(linear).signature.parameters
    if list(takes)[:2] != ["in_features", "out_features"]:
        raise ValueError(f"{type(owner).__name__}: linear={linear!r} is no linear map; use 'linear' or 'sdd-linear'")
    return catalog.create(linear, inputs, outputs, bias=bias)


Core = type[AttentionCore]
MADE = {"gate"}  # what a layer projects for a core besides queries, keys and values


def cores() -> dict[str, Core]:
    """The attention cores that go with what a layer makes, by name."""
    return {card.name: card.entry for card in catalog.members(CORE) if MADE.issuperset(card.entry.further)}


def find_core(owner: object, argument: str, text: Any) -> catalog.Choice:
    """Return an attention core by name, with arguments where they are written; an unknown one gets the list."""
    choice = catalog.choose(owner, argument, text, CORE)
    if not MADE.issuperset(choice.card.entry.further):
        check.choice(owner, argument, text, tuple(cores()))
    return choice


def keeps_keys(core: Core) -> bool:
    """Whether a mask can say what is earlier, as windows and caches of keys need."""
    return core.masks == "pairs" and core.crossed and False in core.forms


def reads_others(core: Core) -> bool:
    """Whether each query reads the keys of another sequence by itself, which cross-attention needs.

    A sum over the queries would show a decoder the tokens to come, and padding.
    """
    return core.crossed and False in core.forms and "T" not in core.card.over.axes


def goes_on(core: Core) -> bool:
    """Whether tokens can be taken one by one: from the past's keys and values, or from a state."""
    return keeps_keys(core) or issubclass(core, Recurrent)


def takes(option: str) -> Callable[[Core], bool]:
    """Whether a core is built with an argument."""
    return lambda core: option in core.card.signature.parameters


def require(core: Core, able: Callable[[Core], bool], what: str) -> None:
    """Require a core that is able to take something, or say which ones are."""
    if not able(core):
        names = [name for name, other in cores().items() if able(other)]
        way = f"those that do: {', '.join(names)}" if names else f"it takes {', '.join(core.card.signature.parameters)}"
        raise ValueError(f"Attention: core {core.card.name!r} takes no {what}; {way}")


def key_mask(owner: Any, mask: Any, q: Tensor, keys: int, used: int = 0) -> Any:
    """Return a mask as a core takes it: one of keys (B, S) is the same for all heads and queries.

    The first ``used`` keys are left out.
    """
    axes = mask.dim() if isinstance(mask, Tensor) else 0
    if axes == 2:
        check.mask(owner, "mask", mask, (q.shape[0], keys), q)
        return mask[:, None, None, used:]
    if axes == 3 and mask.shape[0] != 1:
        raise ValueError(
            f"{check.whose(owner)}: mask of shape {tuple(mask.shape)} may be of samples or of heads; "
            "give mask[:, None] of a mask (B, T, S), or mask[None] of a mask (heads, T, S)"
        )
    check_seen(owner, "mask", mask, "(B, heads, T, S)", (q.shape[0], owner.heads, q.shape[2], keys), q)
    return mask if mask is None or not axes else mask.expand(*mask.shape[:-1], keys)[..., used:]


def check_kind(owner: object, cache: Any, kind: type | tuple[type, ...]) -> None:
    """Require a cache as ``empty_cache`` makes it, where there is one."""
    if cache is not None and not isinstance(cache, kind):
        raise TypeError(
            f"{check.whose(owner)}: cache must be what its own empty_cache() returns, not of {type(cache).__name__}"
        )


def check_samples(owner: object, kept: Tensor | None, x: Tensor) -> None:
    """Require that what a cache has is of as many samples as ``x``."""
    if kept is not None and kept.shape[0] != x.shape[0]:
        raise ValueError(f"{check.whose(owner)}: cache is of {kept.shape[0]} samples, but x has {x.shape[0]}")


def positions(q: Tensor, k: Tensor, past: int) -> tuple[Tensor, Tensor]:
    """Return where queries (T, 1) and keys (S,) stand."""
    return torch.arange(past, past + q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)


def _size_or(default: Any, owner: object, name: str, value: int | None, **bounds: int) -> Any:
    """A size that is in bounds, or the default where it is None."""
    return default if value is None else check.size(owner, name, value, **bounds)


class Attention(nn.Module):
    """Project to queries, keys and values, head by head let the core mix them, and project back.

        q, k, v = x Wqᵀ, x Wkᵀ, x Wvᵀ        cut into heads; with fewer key heads, neighbouring queries share one
        q, k, v = query_norm(q), key_norm(k), value_norm(v)        where there are such norms, over each head's features
        gate = x Wgᵀ                         for a core that wants one
        A(x) = join(core(rotate(q), rotate(k), v)) Woᵀ

    Args:
        dim: features of the stream.
        heads: how many heads; without ``head_dim`` it must divide dim.
        kv_heads: how many heads keys and values have; it must divide heads.
        head_dim: features of a head, dim / heads by default.
        causal: position t sees positions s <= t.
        core, core_options: a method of the attention room by name, and its further arguments.
        place: the place of the layer, for cores that need it: ``layer`` and ``depth``.
        norms: which of query, key and value are normalized. norm: by which norm. norm_over: each ``"head"`` by
            itself, or the full ``"width"`` before it is cut.
        value_norm: by which norm the values are normalized too, over the same; None: by none.
        head_scale: a learned number multiplies each head's slice of the result.
        window: how many positions back a query sees, itself included; None for all.
        rotary: ``"halves"`` or ``"pairs"``: which features the rotary embedding turns together.
        rotary_dim: how many features of a head it turns, the first ones; None for all.
        bias, linear: the projections have a bias; are of another kind than torch's.
        crossed: keys and values come from a memory, the states of another sequence.
        keys_of: keys and values are those of an earlier layer of this number, and none are projected here.
    """

    rotary_dim: int | None = None
    keys_of: int | None = None

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = True,
        core: str = "softmax",
        core_options: Mapping[str, Any] | None = None,
        place: Mapping[str, int] | None = None,
        norms: tuple[str, ...] = (),
        norm: NormName = "layernorm",
        norm_over: str = "head",
        value_norm: NormName | None = None,
        head_scale: bool = False,
        window: int | None = None,
        rotary: str = "halves",
        rotary_dim: int | None = None,
        bias: bool = False,
        output_bias: bool | None = None,
        linear: LinearName = "linear",
        crossed: bool = False,
        keys_of: int | None = None,
    ):
        super().__init__()
        self._size_heads(dim, heads, kv_heads, head_dim)
        self.window = _size_or(None, self, "window", window)
        self.keys_of = _size_or(None, self, "keys_of", keys_of, least=0)
        choice = find_core(self, "core", core)
        kind: Core = choice.card.entry
        self.cut = self._cut(kind)
        self._check_core(kind, crossed)
        widths = self._widths(kind)
        self._add_maps(linear, dim, widths, (bias, bias if output_bias is None else output_bias))
        self._set_rotary(rotary, rotary_dim)
        self._add_norms(norm_over, dict.fromkeys(norms, norm), value_norm, widths)
        self.head_scale = nn.Parameter(torch.ones(self.heads)) if head_scale else None
        self.causal = bool(causal)
        self.core = self._build_core(kind, {**choice.arguments, **(core_options or {})}, place)

    def _size_heads(self, dim: int, heads: int, kv_heads: int | None, head_dim: int | None) -> None:
        """Take the heads, and the features of one; by default keys have as many, and all share the width out."""
        self.heads = check.size(self, "heads", heads)
        self.kv_heads = _size_or(self.heads, self, "kv_heads", kv_heads)
        check.divides(self, "kv_heads", self.kv_heads, "heads", self.heads)
        if head_dim is None:
            check.divides(self, "heads", self.heads, "dim", dim)
        self.head_dim = _size_or(dim // self.heads, self, "head_dim", head_dim)

    def _set_rotary(self, rotary: str, size: int | None) -> None:
        """Take which features of a head are turned as pairs."""
        self.rotary = check.choice(self, "rotary", rotary, PAIRINGS)
        self.rotary_dim = _size_or(None, self, "rotary_dim", size, most=self.cut["query"])
        if size is not None and size % 2:
            raise ValueError(f"Attention: rotary_dim must be even, since features turn in pairs, not {size}")

    def _add_maps(self, linear: LinearName, dim: int, widths: Mapping[str, int], bias: tuple[bool, bool]) -> None:
        """Add the linear maps into the core, and the one out of it."""
        for name, width in widths.items():
            self.add_module(name, make_linear(self, linear, dim, width, bias[0]))
        self.output = make_linear(self, linear, widths["query"], dim, bias[1])

    def _add_norms(
        self, over: str, norms: dict[str, NormName], value_norm: NormName | None, widths: Mapping[str, int]
    ) -> None:
        """Add the norms of what is projected, over each head or the full width."""
        self.norm_over = check.choice(self, "norm_over", over, ("head", "width"))
        norms = norms if value_norm is None else {**norms, "value": value_norm}
        self.norms = tuple(name for name in norms if name in widths)
        for name in self.norms:
            size = (self.cut if over == "head" else widths)[name]
            self.add_module(f"{name}_norm", make_norm(self, norms[name], size))

    def _check_core(self, kind: Core, crossed: bool) -> None:
        """Require a core that reads the keys which queries are to see."""
        for needed, able, what in (
            (self.keys_of is not None, keeps_keys, "keys of an earlier layer, as keys_of wants"),
            (self.window is not None, keeps_keys, "window"),
            (crossed, reads_others, "keys of another sequence, which cross-attention has"),
        ):
            if needed:
                require(kind, able, what)

    def _widths(self, kind: Core) -> dict[str, int]:
        """How many features each projection makes, by its name."""
        own, others = self.heads * self.head_dim, self.kv_heads * self.head_dim
        keys = {} if kind.keys_are_queries else {"key": others}
        read = {} if self.keys_of is not None else {**keys, "value": others}
        return {"query": own, **read, **dict.fromkeys(kind.further, own)}

    @property
    def turned(self) -> int:
        """How many features of a query's head positions turn; none before a core that turns by itself."""
        if self.core.turns:
            return 0
        return self.cut["query"] if self.rotary_dim is None else self.rotary_dim

    def _build_core(self, kind: Core, options: Mapping[str, Any], place: Mapping[str, int] | None) -> AttentionCore:
        """Build the core. With a window, a mask says what is earlier; else the core does."""
        if place is not None:
            options = {argument: place[what] for argument, what in kind.place.items()} | dict(options)
        for option in options:
            require(kind, takes(option), repr(option))
        causal = self.causal and self.window is None
        require(kind, lambda core: causal in core.forms, f"causal={causal}")
        form = {"causal": causal} if len(kind.forms) > 1 else {}
        return catalog.create(kind.card.name, self.cut["query"], heads=self.heads, **form, **options)

    @restore_cache
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: KeysValues | State | None = None,
        angles: Turns | None = None,
        sphere: Tensor | None = None,
        memory: Tensor | None = None,
        lent: KeysValues | None = None,
    ) -> Tensor:
        """Attend from every position of ``x`` (B, T, dim) to those it sees, of ``cache`` also, or to ``memory``.

        ``mask`` is True where a key is seen: (B, S), (1, T, S), or four axes that broadcast to (B, heads, T, S); S
        counts the past too. ``angles`` turn queries and keys. With ``sphere`` (heads, head_dim) they then get unit
        length and are multiplied by it. The keys and values of ``memory`` (B, S, dim) are worked out once where there
        is a cache. ``lent`` holds the keys and values that layers share: with ``keys_of`` they are read from it, else
        written to it.
        """
        angles = angles if self.turned else None
        gates = {name: self._heads(name, x) for name in type(self.core).further}
        if memory is not None:
            return self._read(self._heads("query", x), memory, mask, cast("KeysValues | None", cache), gates)
        check_kind(self, cache, KeysValues if keeps_keys(type(self.core)) else State)
        q = self._heads("query", x, angles)
        if self.keys_of is not None:
            k, v = self._borrowed(lent)
            return self._join(self._attend(q, self._shared(k), self._shared(v), mask, k.shape[2] - q.shape[2], gates))
        v = self._heads("value", x)
        k = self._heads("key", x, angles) if hasattr(self, "key") else q
        if sphere is not None:
            q, k = (unit(z) * sphere[:, None].to(z.dtype) for z in (q, k))
        if isinstance(cache, State):
            return self._join(self._go_on(q, self._shared(k), self._shared(v), mask, cache))
        past = 0 if cache is None else cache.length
        if cache is not None:
            check_samples(self, cache.keys, x)
            k, v = cache.extend(k, v)
        if lent is not None:
            lent.keys, lent.values = k, v
        return self._join(self._attend(q, self._shared(k), self._shared(v), mask, past, gates))

    def _borrowed(self, lent: KeysValues | None) -> tuple[Tensor, Tensor]:
        """The keys and values that an earlier layer left."""
        if lent is None or lent.keys is None or lent.values is None:
            raise ValueError(
                f"Attention: keys_of={self.keys_of}, but lent is empty; that layer must write to it before"
            )
        return lent.keys, lent.values

    def empty_cache(self) -> KeysValues | State:
        """Return a cache for :meth:`forward`: of keys and values, or of the core's state where it has one."""
        require(type(self.core), goes_on, "cache")
        keys = keeps_keys(type(self.core))
        reason = self.core.no_past() if keys else cast(Recurrent, self.core).no_state()
        if reason is not None:
            raise ValueError(f"Attention: core {self.core.card.name!r} takes no cache: {reason}")
        return KeysValues() if keys else State()

    def _read(
        self, q: Tensor, memory: Tensor, mask: Tensor | None, cache: KeysValues | None, gates: Mapping[str, Tensor]
    ) -> Tensor:
        """Attend to the keys and values of ``memory``, or to those that ``cache`` already has of it."""
        cache = KeysValues() if cache is None else cache
        if cache.keys is None:
            cache.extend(self._heads("key", memory), self._heads("value", memory))
        k, v = cast(Tensor, cache.keys), cast(Tensor, cache.values)
        return self._join(self._attend(q, self._shared(k), self._shared(v), mask, 0, gates))

    def _go_on(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: State) -> Tensor:
        """Let further tokens go on from the core's state; of a mask (B, S), what is past has been used."""
        mask = key_mask(self, mask, q, cache.length + q.shape[2], cache.length)
        y, cache.state = cast(Recurrent, self.core).prefill(q, k, v, mask=mask, state=cache.state)
        cache.length += q.shape[2]
        return y

    def _cut(self, core: Core) -> dict[str, int]:
        """Features of a head of each; a core may want queries and keys in more, smaller heads, as differential does."""
        parts = core.splits
        if self.head_dim % parts:
            name = core.card.name
            raise ValueError(f"Attention: core {name!r} needs a head_dim that {parts} divides, not {self.head_dim}")
        further = dict.fromkeys(core.further, self.head_dim)
        return {"query": self.head_dim // parts, "key": self.head_dim // parts, "value": self.head_dim, **further}

    def _heads(self, name: str, x: Tensor, angles: Turns | None = None) -> Tensor:
        """Project, normalize, cut and turn: (B, heads, T, head_dim)."""
        z = getattr(self, name)(x)
        norm = getattr(self, f"{name}_norm") if name in self.norms else None
        z = norm(z) if norm is not None and self.norm_over == "width" else z
        z = z.unflatten(-1, (-1, self.cut[name]))
        if norm is None or self.norm_over == "width":
            return self._turned(z, angles)
        whole = self.turned == self.cut[name]
        if angles is not None and whole and hasattr(norm, "norm_rotate") and not watched(norm):
            return show(norm, z, norm.norm_rotate(z.transpose(1, 2), angles, self.rotary))
        return self._turned(norm(z), angles)

    def _turned(self, z: Tensor, angles: Turns | None) -> Tensor:
        """Bring heads (B, T, heads, head_dim) to the front, and turn them where there are angles."""
        z = z.transpose(1, 2)
        if angles is None or self.turned == z.shape[-1]:
            return z if angles is None else rotate(z, angles, self.rotary)
        return torch.cat([rotate(z[..., : self.turned], angles, self.rotary), z[..., self.turned :]], -1)

    def _shared(self, z: Tensor) -> Tensor:
        """Give each key and value head to its group of queries, where there are fewer."""
        groups = self.heads * self.head_dim // (z.shape[1] * z.shape[3])
        return z if groups == 1 else z.unflatten(1, (self.kv_heads, -1)).repeat_interleave(groups, 1).flatten(1, 2)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, past: int, gates: Mapping[str, Tensor]
    ) -> Tensor:
        core = self.core
        mask = key_mask(self, mask, q, k.shape[2])
        if self.window is not None or (self.causal and past):
            core, seen = core.without_order(), self._visible(q, k, past)
            mask = seen if mask is None else mask & seen
        if mask is None:
            return core(q, k, v, **gates)
        require(type(core), lambda other: other.masks is not None, "mask")
        if not self.causal and "query_mask" in core.card.inputs:  # a core that sums over the queries too
            gates = {**gates, "query_mask": torch.atleast_2d(mask).mT}
        return core(q, k, v, **gates, mask=mask)

    def _visible(self, q: Tensor, k: Tensor, past: int) -> Tensor:
        at, key = positions(q, k, past)
        seen = key <= at if self.causal else torch.ones_like(key <= at)
        return seen if self.window is None else seen & (at - key < self.window) & (key - at < self.window)

    def _join(self, y: Tensor) -> Tensor:
        """Join the heads, (B, heads, T, head_dim) to (B, T, dim)."""
        y = self.output(y.transpose(1, 2).flatten(2))
        if self.head_scale is None:
            return y
        return (y.unflatten(-1, (self.heads, -1)) * self.head_scale[:, None].to(y.dtype)).flatten(-2)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "relu_squared": lambda x: F.relu(x).square(),
}


def gaussian_top_k(x: Tensor, quantile: float) -> Tensor:
    """Return what of each feature lies above the mean of all by ``quantile`` deviations, or 0."""
    held = accurate(x)
    bound = held.mean(-1, keepdim=True) + quantile * root(held.var(-1, correction=0, keepdim=True))
    return F.relu(x - bound.to(x.dtype))


def limited_swiglu(h: Tensor) -> Tensor:
    """DeepSeek-V4's gate, for h = (u, gate): u silu(gate), the gate at most 10 and u within 10 of 0."""
    u, gate = h.chunk(2, -1)
    return F.silu(gate.clamp(max=10.0)) * u.clamp(-10.0, 10.0)


def clamped_swiglu(h: Tensor) -> Tensor:
    """gpt-oss's gate, for h = (u, gate): (u + 1) gate sigmoid(1.702 gate), the gate at most 7 and u within 7 of 0."""
    u, gate = h.chunk(2, -1)
    gate = gate.clamp(max=7.0)
    return (u.clamp(-7.0, 7.0) + 1) * gate * torch.sigmoid(1.702 * gate)


HALVES: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: functools.partial(gated, name=name) for name in GATES},
    "limited_swiglu": limited_swiglu,
    "clamped_swiglu": clamped_swiglu,
}


class FeedForward(nn.Module):
    """Widen, activate, narrow: F(x) = down(act(up(x))), position by position.

    With a gate (``"swiglu"``, ``"geglu"``, ``"limited_swiglu"``), ``up`` has 2 * hidden rows, first u, then the gate,
    and act is act(gate) * u, of ``"clamped_swiglu"``, gpt-oss's, act(gate) * (u + 1).

    Args:
        dim, hidden: features of the stream, and in between.
        activation: a name; an unknown one gets the list.
        bias, linear: the linears have a bias; are of another kind than torch's.
        sparsity: about this share of what is activated becomes 0 first: what lies below that quantile of a normal law
            of the token's own mean and deviation, which is subtracted from the rest (Gemma 3n).
    """

    quantile: float | None = None  # pickles of before sparsity came have none

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: str = "gelu",
        bias: bool = False,
        linear: LinearName = "linear",
        sparsity: float = 0.0,
    ):
        super().__init__()
        hidden = check.size(self, "hidden", hidden)
        if check.number(self, "sparsity", sparsity, 0.0, 1 - 2**-24):
            self.quantile = statistics.NormalDist().inv_cdf(sparsity)
        self.activation = check.choice(self, "activation", activation, (*ACTIVATIONS, *HALVES))
        self.up = make_linear(self, linear, dim, hidden * (2 if activation in HALVES else 1), bias)
        self.down = make_linear(self, linear, hidden, dim, bias)

    def forward(self, x: Tensor, before: Callable | None = None, after: Callable | None = None) -> Tensor:
        """Map ``x``; ``before`` and ``after`` act on the hidden features before and after the activation."""
        h = self.up(x)
        h = self._activate(h if before is None else before(h))
        return self.down(h if after is None else after(h))

    def _activate(self, h: Tensor) -> Tensor:
        if self.quantile is not None:
            *u, gate = h.chunk(2, -1) if self.activation in HALVES else (h,)
            h = torch.cat([*u, gaussian_top_k(gate, self.quantile)], -1)
        return HALVES.get(self.activation, ACTIVATIONS.get(self.activation))(h)  # type: ignore[misc]
