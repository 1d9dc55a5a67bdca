"""A layer norm while it is being taken out of a model, and the linear map that is left of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normkit import statistics
from normkit.residual.fake_layernorm import FakeLayerNorm
from normkit.surgery.edits.layers import as_linear, like
from normkit.surgery.recognition.match import Match

REST, SEPARATOR, FIRST = KINDS = ("rest", "separator", "first")  # positions with a deviation of their own

MOMENTUM, UNSEEN = 0.9, -1.0


def is_tokens(x: Any) -> bool:
    """Whether something is the numbers of tokens (B, T)."""
    return torch.is_tensor(x) and x.dtype in (torch.int32, torch.long) and x.ndim == 2


class Tokens:
    """What a model was last called with, to know at which positions the first and the separating tokens are."""

    def __init__(self, separator: int | None = None):
        self.separator = separator
        self.seen: Tensor | None = None

    def watch(self, model: nn.Module) -> Any:
        """Look at every call of a model, until the handle's ``remove()``."""
        return model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, model: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        given = (*args, named.get("input_ids"), *named.values())  # a mask may stand before the tokens, and labels too
        self.seen = next(filter(is_tokens, given), None)

    def kinds(self, x: Tensor) -> Tensor | None:
        """Of each position of (B, T, C) the number of its kind; None where the input has no positions."""
        if x.ndim != 3:
            return None
        kinds = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        if self.separator is not None and self.seen is not None and self.seen.shape == kinds.shape:
            kinds[self.seen == self.separator] = KINDS.index(SEPARATOR)
        kinds[:, 0] = KINDS.index(FIRST)
        return kinds


class Fading(nn.Module):
    """A layer norm on its way out: true, or divided by a constant, for each kind of position its own.

    The values of an attention may keep the true norm for longer: then ``apart`` is what they read, and the result what
    the others do. ``spread`` is the deviation of each position of the last input, with its
    gradient, and ``kinds`` of which kind each is.
    """

    values_are_fake: Tensor
    norms: Any
    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, dim: int, tokens: Tokens, *, eps: float, bias: bool, splits: bool):
        super().__init__()
        self.dim, self.eps, self.tokens = dim, eps, tokens
        self.norms = nn.ModuleDict({kind: FakeLayerNorm(dim, eps=eps, bias=bias) for kind in KINDS})
        self.weight, self.bias = self.norms[REST].weight, self.norms[REST].bias
        for norm in self.norms.values():
            norm.weight, norm.bias = self.weight, self.bias
        self.register_buffer("values_are_fake", torch.tensor(not splits))
        self.apart: Tensor | None = None
        self.spread: Tensor | None = None
        self.kinds: Tensor | None = None

    @classmethod
    @torch.no_grad()
    def of(cls, match: Match, tokens: Tokens, splits: bool) -> Fading:
        """From a layer norm that was recognized, with its numbers."""
        own: Any = match.module
        new = cls(match.kwargs["dim"], tokens, eps=own.eps, bias=own.bias is not None, splits=splits)
        new = new.to(next(own.parameters(), new.weight))  # its device and type
        if own.weight is not None:
            new.weight.copy_(own.weight + getattr(own, "offset", 0.0)).requires_grad_(own.weight.requires_grad)
        if own.bias is not None:
            new.bias.copy_(own.bias).requires_grad_(own.bias.requires_grad)  # type: ignore[union-attr]
        return new

    def forward(self, x: Tensor) -> Tensor:
        """Normalize, truly or not."""
        self.spread = (x.var(-1, correction=0) + self.eps).sqrt()
        self.kinds = kinds = self.tokens.kinds(x)
        if kinds is None:
            y = self.norms[REST](x)
        else:
            y = torch.empty_like(x)
            for number, kind in enumerate(KINDS):
                y[kinds == number] = self.norms[kind](x[kinds == number])
        split = self.norms[REST].is_fake and not self.values_are_fake
        self.apart = functional.layer_norm(x, (self.dim,), self.weight, self.bias, self.eps) if split else None
        return y

    @torch.no_grad()
    def measure(self) -> None:
        """Let the deviations of the next call be what is followed from there on."""
        for norm in self.norms.values():
            norm.momentum = 0.0
            norm.running_std.fill_(UNSEEN)

    @torch.no_grad()
    def follow(self) -> None:
        """Follow the deviations slowly again; a kind that was not seen begins with the rest's."""
        for norm in self.norms.values():
            norm.momentum = MOMENTUM
            if norm.running_std == UNSEEN:
                norm.running_std.copy_(self.norms[REST].running_std)

    def remove(self) -> None:
        """Divide by the deviation as it is now from here on."""
        for norm in self.norms.values():
            norm.sync_std()
            norm.remove()

    def remove_values(self) -> None:
        """So for what values read too."""
        self.values_are_fake.fill_(True)

    @torch.no_grad()
    def drop(self, kind: str) -> None:
        """Give a kind of positions the deviation of the rest."""
        self.norms[kind].fixed_std.copy_(self.norms[REST].fixed_std)

    @property
    def gone(self) -> bool:
        """Whether it divides by constants for all that read it."""
        return bool(self.norms[REST].is_fake and self.values_are_fake)

    def values_of(self, rows: Tensor) -> Any:
        """A hook for a layer that reads this norm: its rows that are values read the true norm, as long as it is."""

        def hook(layer: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Tensor:
            if self.apart is None:
                return y
            apart = self.apart.view(*y.shape[:-1], self.apart.shape[-1])
            return torch.where(rows.to(y.device), layer.forward(apart), y)

        return hook

    def left(self) -> Fixed:
        """What it is in the end."""
        scale = self.weight.detach() / self.norms[REST].fixed_std
        return Fixed(scale, None if self.bias is None else self.bias.detach().clone())


class Fixed(nn.Module):
    """What is left of a layer norm that is no longer one: the mean off, a constant gain, a shift; a linear map.

    Args:
        weight: the gain, (C,).
        bias: the shift, (C,), if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.bias: nn.Parameter | None
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x`` (..., C)."""
        wide = statistics.accurate(x)
        y = (wide - wide.mean(-1, keepdim=True)) * self.weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)

    @torch.no_grad()
    def into(self, layer: nn.Module) -> nn.Module:
        """A linear layer that does what this map and then ``layer`` do; in float64, rounded once; frozen as that is."""
        new: Any = as_linear(layer)
        linear = nn.Linear(new.in_features, new.out_features, device="meta").train(layer.training)
        exact = new.weight.double()
        weight = exact * self.weight.double()
        weight = weight - weight.mean(1, keepdim=True)
        shift = 0 if self.bias is None else exact @ self.bias.double()
        bias = shift if new.bias is None else new.bias.double() + shift
        learned = [p.requires_grad for p in (new.weight, new.bias) if p is not None]  # a new bias is as the weight
        linear.weight = nn.Parameter(weight.to(new.weight.dtype), learned[0])
        own = nn.Parameter(bias.to(new.weight.dtype), learned[-1]) if torch.is_tensor(bias) else None
        linear.register_parameter("bias", own)
        return like(layer, linear)
