"""A mixture of experts: a feedforward of which each token passes through the few parts that a router chose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.layers import Linear
from normkit.transformer.attention import ACTIVATIONS, HALVES, FeedForward

ROOM = "router"


class Stack(nn.Module):
    """Linear maps side by side, one an expert: weight (experts, outputs, inputs), bias (experts, outputs)."""

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool):
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(experts, outputs).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map (experts, rows, inputs)."""
        y = x @ self.weight.to(x.dtype).mT
        return y if self.bias is None else y + self.bias.to(x.dtype).unsqueeze(1)


class MixtureOfExperts(nn.Module):
    """Let each token pass through the experts that a router chose for it, and add their results by its weights.

        weights, experts = router(x)
        F(x) = sum_i weights_i expert_i(x) [+ shared(x)]        expert(x) = down(act(up(x)))

    Args:
        dim, hidden: features of the stream, and inside each expert.
        router: a method of the router room by name, with its arguments: ``"router:experts=8,top_k=2"``,
            ``"deepseek-v3-router:experts=8,top_k=2,scale=2.5"``.
        activation, bias: those of the experts, as of a ``FeedForward``.
        capacity: an expert takes at most capacity * top_k / experts of the tokens, first choices first and tokens in
            their order; the others are dropped by it, which is to add nothing. Padding takes no room, and is dropped,
            but counts among the tokens. None: no token is dropped.
        shared: features inside a further expert that all tokens pass through; 0: none.
        shared_gate: its result is multiplied by the sigmoid of a learned linear map of x.
        hashed: a token's experts stand in the buffer ``table`` (hashed, top_k) by the token's number, of so many, and
            the router only weighs them, as in DeepSeek-V4's first layers; 0: the router chooses.

    After a call ``load`` (experts,) has the share of the tokens that chose each expert, and ``dropped`` the share of
    all choices that were dropped; :meth:`balance` moves the router's selection bias by what training calls chose.
    Padding counts in none of them.

    Without a capacity each expert gets room for the longest queue; a compiler, which cannot know it, gives each room
    for all tokens.
    """

    load: Tensor | None
    dropped: Tensor | None
    table: Tensor | None
    _choices: Tensor | None
    _mask: Tensor | None = None  # pickles of before have none

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        router: str,
        activation: str = "gelu",
        bias: bool = False,
        capacity: float | None = None,
        shared: int = 0,
        shared_gate: bool = False,
        hashed: int = 0,
    ):
        super().__init__()
        self.router = make_router(self, router, dim)
        self.experts, self.top_k = cast(int, self.router.experts), cast(int, self.router.top_k)
        hidden = check.size(self, "hidden", hidden)
        self.activation = check.choice(self, "activation", activation, (*ACTIVATIONS, *HALVES))
        self.capacity = None if capacity is None else check.number(self, "capacity", capacity, 0.0, open_low=True)
        self.up = Stack(self.experts, dim, hidden * (2 if activation in HALVES else 1), bias)
        self.down = Stack(self.experts, hidden, dim, bias)
        self.shared = None
        if check.size(self, "shared", shared, least=0):
            self.shared = FeedForward(dim, shared, activation=activation, bias=bias)
        elif shared_gate:
            raise ValueError("MixtureOfExperts: shared_gate needs a shared expert; give shared, its hidden features")
        self.shared_gate = Linear(dim, 1, bias=False) if shared_gate else None
        table = None
        if check.size(self, "hashed", hashed, least=0):  # neighbours, so that loads are even
            first = torch.arange(hashed)[:, None]
            table = (first + torch.arange(self.top_k)) % self.experts
        self.register_buffer("table", table)
        self.load = self.dropped = self._choices = None

    def forward(
        self,
        x: Tensor,
        before: Callable | None = None,
        after: Callable | None = None,
        numbers: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Map ``x`` (..., dim); with a table, of the tokens of these ``numbers`` (...).

        Tokens where a ``mask`` (...) is False count in no load, and with a capacity are dropped.
        """
        if mask is not None:
            check.mask(self, "mask", mask, tuple(x.shape[:-1]), x)
            mask = mask.reshape(-1)
        tokens = x.reshape(-1, x.shape[-1])
        if self.table is None:
            weights, experts = self.router(tokens)
        else:
            check.index(self, "numbers", numbers, tuple(x.shape[:-1]), len(self.table), x)
            experts = self.table[cast(Tensor, numbers).reshape(-1)]
            weights = cast(Any, self.router).weigh(tokens, experts)
        queue = experts.T.flatten()  # all first choices, then all second ones
        marks = nn.functional.one_hot(queue, self.experts)
        counted = marks if mask is None else marks * mask.repeat(self.top_k).unsqueeze(1)
        marks = marks if self.capacity is None else counted
        place = (marks.cumsum(0) - 1).gather(1, queue[:, None]).squeeze(1)
        room = self._room(len(tokens), marks)
        kept = (place < room) & marks.any(1)
        slot = torch.where(kept, queue * room + place, self.experts * room)  # what is dropped goes behind the last
        rows = tokens.repeat(self.top_k, 1)
        places = rows.new_zeros(self.experts * room + 1, rows.shape[1]).index_copy(0, slot, rows)
        h = self.down(self._activate(self.up(places[:-1].unflatten(0, (self.experts, room)))))
        y = torch.cat([h.flatten(0, 1), h.new_zeros(1, h.shape[-1])])[slot] * weights.T.reshape(-1, 1)
        self._note(experts, counted, kept, mask)
        return y.unflatten(0, (self.top_k, -1)).sum(0).reshape(x.shape) + self._shared(x)

    def _room(self, tokens: int, marks: Tensor) -> int:
        """How many tokens an expert can take."""
        if self.capacity is not None:
            return min(tokens, math.ceil(self.capacity * tokens * self.top_k / self.experts))
        return int(marks.sum(0).max()) if check.readable(marks) and tokens else tokens

    def _activate(self, h: Tensor) -> Tensor:
        return HALVES.get(self.activation, ACTIVATIONS.get(self.activation))(h)  # type: ignore[misc]

    def _shared(self, x: Tensor) -> Tensor | float:
        if self.shared is None:
            return 0.0
        y = self.shared(x)
        return y if self.shared_gate is None else y * torch.sigmoid(self.shared_gate(x))

    def _note(self, experts: Tensor, counted: Tensor, kept: Tensor, mask: Tensor | None) -> None:
        """Keep what the router chose; of training calls also for :meth:`balance`."""
        tokens = (counted.sum() // self.top_k).clamp(min=1)
        self.load = counted.sum(0) / tokens
        self.dropped = 1 - (kept & counted.any(1)).sum() / (tokens * self.top_k)
        if self.training:
            self._choices, self._mask = experts, mask

    def balance(self, rate: float = 0.001) -> Tensor:
        """Move the router's selection bias towards even loads by the choices of the last training call."""
        if self._choices is None:
            raise ValueError("MixtureOfExperts: balance has no choices yet; call the model in training first")
        choices = self._choices if self._mask is None else self._choices[self._mask]
        return cast(Any, self.router).balance(choices, rate)


def make_router(owner: object, router: Any, dim: int) -> nn.Module:
    """Build a router by name and arguments; another kind of method gets the list."""
    names = catalog.methods(room=ROOM)
    if not isinstance(router, str):
        check.choice(owner, "router", router, names)
    choice = catalog.find(router)
    if choice.card.room != ROOM:
        check.choice(owner, "router", router, names)
    missing = [name for name in ("experts", "top_k") if name not in choice.arguments]
    if missing:
        expected = f"{' and '.join(missing)}, as 'router:experts=8,top_k=2' does"
        raise ValueError(f"{check.whose(owner)}: router={router!r} must say {expected}")
    return choice.create(dim)
