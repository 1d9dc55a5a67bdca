"""What a signal is: some numbers, how two readings of each become one, and the function that takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.parameters import tensors_in

BLOCK, LAYER, NORMED, FUNCTION = "block", "layer", "norm", "function"  # what a module of a model is
STATE = ("running_mean", "running_var", "dropped")  # tensors that a call leaves in its module, and signals read
HIDDEN = -1e38  # below which lie -inf and the least finite number of a type, by which masks hide scores
MOST = 2**18  # entries looked at of one tensor: of more, a share of its samples


class Place(NamedTuple):
    """A module of a model: what it is by itself, a layer, a norm or a function, and whether it is one of its blocks."""

    module: nn.Module
    what: str
    block: bool = False


class Call(NamedTuple):
    """One call of a module: its first input and output, the axis that its channels lie on, and all that it gave.

    state: what it left in the module by :data:`STATE`, where the module itself does not hold it yet.
    """

    module: nn.Module
    x: Tensor | None
    y: Tensor | None
    axis: int
    output: Any = None
    state: Mapping[str, Tensor] | None = None

    def left(self, name: str) -> Any:
        """Return what the call left in the module under a name, None where nothing was."""
        return getattr(self.module, name, None) if self.state is None else self.state.get(name)


@dataclass(frozen=True)
class Signal:
    """Numbers that are read of one call of a module.

    numbers: each name, and how two readings become one (:mod:`normkit.watching.store`).
    read: returns them as a vector on the tensor's own device, or None where there is nothing to read.
    fits: whether they are read at a place.
    """

    name: str
    numbers: Mapping[str, str]
    read: Callable[[Call], Tensor | None]
    fits: Callable[[Place], bool] = lambda place: True


def first_tensor(value: Any) -> Tensor | None:
    """Return the first floating tensor of what a module was given or gave, as tuples, mappings and outputs hold it."""
    return next((x for x in local_tensors(value) if x.is_floating_point() and x.numel()), None)


def local_tensors(value: Any) -> Iterator[Tensor]:
    """Return the tensors that tuples, lists and mappings hold; of a DTensor, this process' part."""
    return (x.to_local() if hasattr(x, "to_local") else x for x in tensors_in(value))


def some(x: Tensor) -> Tensor:
    """Return a tensor in float32, of a huge one evenly chosen samples; what a mask has hidden counts as 0."""
    x = x.detach()
    share = -(-x.numel() // MOST)
    return plain(x[::share] if share > 1 and x.dim() > 1 else x)


def plain(x: Tensor) -> Tensor:
    """Return a tensor in float32; what a mask has hidden counts as 0."""
    x = x.detach().float()
    return x.masked_fill(x < HIDDEN, 0.0)


def others(x: Tensor, axis: int) -> list[int]:
    """Return all axes but one; a vector has one of length one to take it over."""
    return [at for at in range(x.dim()) if at != axis % x.dim()]


def moments(x: Tensor, over: list[int]) -> tuple[Tensor, Tensor]:
    """Return mean and variance over some axes, in a tenth of the time that ``torch.var`` takes on CPU."""
    mean = x.mean(over, keepdim=True)
    return mean.squeeze(over), (x - mean).square_().mean(over)


def stride_over(x: Tensor, count: int) -> Tensor:
    """Return about ``count`` entries of a tensor, evenly spread; an odd stride does not stay on one channel."""
    flat = x.reshape(-1)
    return flat[:: (len(flat) // count) | 1]


def stride_past(count: int, least: int) -> int:
    """Return an odd stride over so many entries that has no factor with them: else they are those of a few columns.

    >>> stride_past(49, 7), stride_past(64, 16)
    (9, 17)
    """
    step = least | 1
    while math.gcd(step, count) > 1:
        step += 2
    return step


def rows_of(x: Tensor, axis: int, count: int) -> Tensor:
    """Return at most ``count`` vectors of channels, evenly chosen, (rows, channels)."""
    rows = x.movedim(axis, -1)
    rows = rows.reshape(-1, rows.shape[-1])
    return rows[:: -(-len(rows) // count)]


def share_of(truth: Tensor) -> Tensor:
    """Return how many of some truth values are true."""
    return truth.float().mean()


def vector(*numbers: Tensor) -> Tensor:
    """Join numbers of any type."""
    return torch.stack([number.float() for number in numbers])
