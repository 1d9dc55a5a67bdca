"""What the attention cores share: heads, a causal flag, the checks of q, k, v, and the mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from normkit import catalog, check
from normkit.kinds import CORE, Method
from normkit.ops.derivatives import under_transform


class Mixer(Method):
    """What lets tokens read each other, and declares what it can do.

    ``forms``: the values of ``causal`` that its mathematics allows; another one is refused. ``linear``: whether time
    and memory grow as the number of tokens, and not as its square.
    """

    forms: ClassVar[tuple[bool, ...]] = (False, True)
    linear: bool = False

    @classmethod
    def fitting(cls, length: int) -> dict[str, Any]:
        """Arguments that a number of tokens calls for, where there are such."""
        return {}


class AttentionCore(Mixer):
    """A map of queries, keys and values, head by head; projections, dropout and the joining of heads are its owner's.

    Shapes: ``q`` (N, heads, T, head_dim), ``k`` and ``v`` (N, heads, S, head_dim). ``mask`` is boolean and broadcasts
    to (N, heads, T, S); True means that the query may see the key. A query that sees no key gets the zero vector.

    A core declares what it can do, besides its ``forms`` and whether it is ``linear``:

    ``masks``: ``"pairs"``, it may hide each key from each query; ``"keys"``, a key from all queries alike; None, none.
    ``crossed``: keys and values may be of another sequence than the queries, where nothing is causal.
    ``keys_are_queries``: it has no keys of its own; ``k`` is not looked at.
    ``splits``: how many heads of queries and keys it takes for one of its result.
    ``further``: what a call must have besides q, k and v.
    ``place``: which arguments have the place of its layer, each ``"layer"``, from 0, or ``"depth"``, how many there
    are.

    A core that can go on from a state instead of the past's keys and values is :class:`Recurrent`.
    """

    kind = CORE
    masks: ClassVar[str | None] = "pairs"
    crossed: ClassVar[bool] = True
    keys_are_queries: ClassVar[bool] = False
    splits: ClassVar[int] = 1
    further: ClassVar[tuple[str, ...]] = ()
    place: ClassVar[Mapping[str, str]] = {}
    ordered = False  # whether a mask keeps the causal rule

    def __init__(self, head_dim: int, heads: int, causal: bool = False):
        super().__init__()
        self.head_dim = check.size(self, "head_dim", head_dim)
        self.heads = check.size(self, "heads", heads)
        self.causal = self._form(bool(causal))

    @property
    def turns(self) -> bool:
        """Whether it turns queries and keys by their positions itself, as those with a ``rope_base`` do."""
        return getattr(self, "rope_base", None) is not None

    def no_past(self) -> str | None:
        """Why the keys of a past cannot stand before those of a call, in a user's words, or None if they can."""
        return None

    def without_order(self) -> AttentionCore:
        """Return the core without its causal rule, which counts from the first query; a mask has to keep it."""
        if not self.causal:
            return self
        core = type(self).__new__(type(self))  # torch.compile has no graph of copy.copy
        core.__dict__.update(self.__dict__, causal=False, ordered=True)
        return core

    def _form(self, causal: bool) -> bool:
        if causal not in self.forms:
            names = [card.name for card in catalog.members(CORE) if causal in card.entry.forms]
            form = f"{'a causal' if causal else 'a non-causal'} form"
            raise ValueError(
                f"{type(self).__name__}: causal must be {not causal}; cores with {form}: {', '.join(names)}"
            )
        return causal

    def _check(self, q: Tensor, k: Tensor, v: Tensor, *, same_length: bool = False, free_value: bool = False) -> None:
        """Require q, k, v of the core's shapes; ``free_value`` allows v its own feature count."""
        n = q.shape[0] if isinstance(q, Tensor) and q.dim() else 0
        check.floating(self, q, "q")
        check.shape(self, "q", q, (n, self.heads, None, self.head_dim))
        length = q.shape[2] if same_length else None
        check.floating(self, k, "k")
        check.shape(self, "k", k, (n, self.heads, length, self.head_dim), q)
        check.floating(self, v, "v")
        check.shape(self, "v", v, (n, self.heads, k.shape[2], None if free_value else self.head_dim), q)
        self._check_types(q, k=k, v=v)

    def _check_types(self, q: Tensor, **others: Tensor) -> None:
        """Require one type of q and what it is multiplied with; autocast makes it so by itself."""
        for name, other in others.items():
            if other.dtype is not q.dtype and not torch.is_autocast_enabled(q.device.type):
                raise TypeError(f"{type(self).__name__}: {name} is {other.dtype}, but q is {q.dtype}; give one type")

    def _check_mask(self, mask: Tensor | None, q: Tensor, k: Tensor) -> None:
        """Require a boolean mask that broadcasts to (N, heads, T, S)."""
        check_seen(self, "mask", mask, "(N, heads, T, S)", (*q.shape[:3], k.shape[2]), q)

    def _mask_of_keys(self, mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """Require a mask of whole keys and return it as (..., S, 1)."""
        self._check_mask(mask, q, k)
        if mask is None:
            return None
        if mask.dim() > 1 and mask.shape[-2] != 1:
            raise ValueError(
                f"{type(self).__name__}: mask must hide a key from all queries alike, shape (N, heads, 1, S), since no "
                f"score of a single pair is made or kept, but its shape is {tuple(mask.shape)}"
            )
        return mask.expand(torch.broadcast_shapes(mask.shape, (1, k.shape[2]))).mT


def check_seen(owner: object, name: str, mask: Any, axes: str, sizes: tuple[int, ...], q: Tensor) -> None:
    """Require a boolean mask that broadcasts to these ``sizes``, on the device of ``q``, where there is one."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{check.whose(owner)}: {name} must be a boolean tensor, True for what is seen, not {got}")
    check.dense(owner, mask, name)
    if not check.broadcastable(mask.shape, sizes):
        size = tuple(mask.shape)
        raise ValueError(f"{check.whose(owner)}: {name} must broadcast to {axes} = {sizes}, but its shape is {size}")
    if mask.device != q.device:
        raise ValueError(f"{check.whose(owner)}: {name} is on {mask.device}, but q is on {q.device}")


class Recurrent(AttentionCore):
    """A core that goes on from a state of its past, which is how tokens are generated one by one.

    Of linear cores the state has a fixed size, so that each token costs the same; others keep all keys and values.

        y, state = core.prefill(q, k, v)                # a prompt, all (N, heads, T, head_dim): the parallel form
        y, state = core.prefill(q, k, v, state=state)   # more of it
        y, state = core.step(q, k, v, state)            # one token, all (N, heads, head_dim)

    Whatever the parts, their results joined are ``core(q, k, v)`` of the joined sequence. ``prefill`` takes the mask
    and the further inputs of the call, ``step`` the further inputs, each of its one token.

    The state is a named tuple of tensors with N in front, so that ``type(state)(*(part[chosen] for part in state))``
    picks and reorders samples, as beam search does. Sums in it are float32 where q is in half precision; all of it
    carries gradients, and nothing is changed in place, so a state may be gone on from twice.

    ``no_state()`` says why a core as it was built has none of this: None where it has.
    """

    state: type[tuple]
    prefill: Callable[..., tuple[Tensor, Any]]

    def no_state(self) -> str | None:
        """Why this core has no state, in a user's words, or None if it has one."""
        return None if self.causal else "step and prefill need causal=True; without it every token looks at all others"

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Take one token: return its result and the state for the next."""
        return self._one({"q": q, "k": k, "v": v}, state)

    def _one(self, token: dict[str, Tensor], state: Any) -> tuple[Tensor, Any]:
        """Prefill one token, each input (N, heads, head_dim)."""
        q = token["q"]
        n = q.shape[0] if isinstance(q, Tensor) and q.dim() else 0
        for name, tensor in token.items():
            check.values(self, name, tensor, (n, self.heads, self.head_dim), like=q)
        y, state = self.prefill(**{name: tensor.unsqueeze(2) for name, tensor in token.items()}, state=state)
        return y.squeeze(2), state

    def _check_state(self, state: Any, q: Tensor) -> None:
        reason = self.no_state()
        if reason is not None:
            raise ValueError(f"{type(self).__name__}: {reason}")
        if state is None:
            return
        name = type(self).__name__
        if not isinstance(state, self.state):
            raise TypeError(f"{name}: state must be what step or prefill returned, not {type(state).__name__}")
        if state[0].shape[0] != q.shape[0]:
            raise ValueError(f"{name}: state is of {state[0].shape[0]} samples, but q has {q.shape[0]}")
        if state[0].shape[1] != self.heads:
            raise ValueError(f"{name}: state is of {state[0].shape[1]} heads, but the core has {self.heads}")
        if state[0].device != q.device:
            raise ValueError(f"{name}: state is on {state[0].device}, but q is on {q.device}")


def visible(mask: Tensor | None, causal: bool, length: int, keys: int, device: torch.device) -> Tensor | None:
    """Join a mask and the causal rule (query i sees keys j <= i, both counted from the first); None is all seen."""
    if not causal:
        return mask
    earlier = torch.ones(length, keys, dtype=torch.bool, device=device).tril()
    return earlier if mask is None else mask & earlier


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Softmax attention on torch's fused kernels; a query that sees no key gets zero and sends no gradient.

    The fused kernels know no forward-mode derivative, so the formula runs under ``torch.func`` and forward mode.

    >>> softmax_attention(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 2, 2), torch.tensor([[[[1.0, 0.0], [3.0, 0.0]]]]))
    tensor([[[[2., 0.]]]])
    """
    if under_transform() or forward_ad._current_level >= 0:
        return softmax_formula(q, k, v, visible(mask, causal, q.shape[2], k.shape[2], q.device), scale)
    if mask is None:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    else:
        mask = mask[(None,) * (q.dim() - mask.dim())]  # the fused kernels refuse three axes
        seen = visible(mask, causal, q.shape[2], k.shape[2], q.device)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    return y.to(q.dtype)


def softmax_formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """The definition of softmax attention; every derivative exists."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    if seen is None:
        return torch.softmax(scores, -1) @ v
    blind = ~seen.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~seen & ~blind, -torch.inf), -1)
    return weights.masked_fill(blind, 0) @ v
