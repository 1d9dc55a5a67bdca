"""How a norm that adapts is handed its condition: as the method takes it, or in another form of the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.surgery.recognition.agreement import numbers

ROWS = 5  # conditions that tokens choose from by number


class Draw(NamedTuple):
    """The sizes of one draw: samples and tokens, the norm's width, its vectors, and the features of its condition."""

    seed: int
    samples: int
    length: int
    dim: int
    pieces: int
    features: int
    size: float
    strength: float
    dtype: torch.dtype

    def tokens(self) -> Tensor:
        """What is normalized."""
        return numbers(self.seed + 1, self.samples, self.length, self.dim, size=self.size, dtype=self.dtype)

    def condition(self, *sizes: int, further: int = 0) -> Tensor:
        """Numbers of these sizes."""
        return numbers(self.seed + 3 + further, *sizes, size=self.strength, dtype=self.dtype)


class Condition:
    """The user's module takes what the method takes: tokens, and a condition of each sample."""

    words = ""

    def inputs(self, draw: Draw) -> list[Tensor]:
        """What both are handed, before either turns it into its own form."""
        return [draw.tokens(), draw.condition(draw.samples, draw.features)]

    def theirs(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The arguments of the user's module."""
        return list(inputs)

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """What the method makes of it, in the form that the user's module returns."""
        return method(*inputs)


class OfTokens(Condition):
    """Each token has a condition of its own."""

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, and as many conditions."""
        return [draw.tokens(), draw.condition(draw.samples, draw.length, draw.features)]


class OfImages(Condition):
    """Images take the place of tokens, channels first."""

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Images, and a condition of each."""
        own = (draw.samples, draw.dim, 3, draw.length)
        x = numbers(draw.seed + 1, *own, size=draw.size, dtype=draw.dtype)
        return [x, draw.condition(draw.samples, draw.features)]


class OfTwoStreams(Condition):
    """Two streams of tokens have one condition; with two sublayers each stream's vectors follow its tokens."""

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens of both streams, and a condition."""
        context = numbers(draw.seed + 2, draw.samples, draw.length + 2, draw.dim, size=2.0, dtype=draw.dtype)
        return [draw.tokens(), context, draw.condition(draw.samples, draw.features)]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Both streams, each with what belongs to it."""
        y, context, *rest = method(*inputs)
        half = len(rest) // 2
        return (y, context, *rest) if half < 2 else (y, *rest[:half], context, *rest[half:])


class OfAll(Condition):
    """All samples have one condition, without an axis of samples."""

    words = "with one condition for all samples"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, and a vector."""
        return [draw.tokens(), draw.condition(draw.features)]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Hand it to every sample."""
        x, condition = inputs
        return method(x, condition.expand(len(x), -1))


class ByNumber(Condition):
    """Tokens of all samples stand in one row, and each has the number of its condition."""

    words = "with the number of each token's condition"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, a few conditions, and numbers."""
        generator = torch.Generator().manual_seed(draw.seed)
        rows = torch.randint(ROWS, (draw.samples, draw.length), generator=generator)
        return [draw.tokens(), draw.condition(ROWS, draw.features), rows]

    def theirs(self, inputs: Sequence[Tensor]) -> list[Any]:
        """Put all in one row."""
        x, condition, rows = inputs
        return [x.flatten(0, 1), condition, rows.flatten()]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Look the conditions up."""
        x, condition, rows = inputs
        return method(x, condition[rows]).flatten(0, 1)


class FirstTokens(Condition):
    """The first tokens have a second condition, and both conditions' vectors are returned."""

    words = "with a second condition of the first tokens"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, both conditions, and how many tokens have the second."""
        first = torch.tensor((draw.length + draw.seed) // 2 % (draw.length + 1))
        both = [draw.condition(draw.samples, draw.features, further=i) for i in range(2)]
        return [draw.tokens(), *both, first]

    def theirs(self, inputs: Sequence[Tensor]) -> list[Any]:
        """Hand the number over as one."""
        return [*inputs[:-1], int(inputs[-1])]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Normalize by both, and take of each its tokens."""
        x, condition, second, first = inputs
        y, *rest = method(x, condition)
        other, *other_rest = method(x, second)
        at = int(first)
        return (torch.cat([other[:, :at], y[:, at:]], 1), *rest, *other_rest)


@dataclass(frozen=True)
class Handed(Condition):
    """The vectors themselves are handed in, one behind the other or, ``apart``, on an axis of their own."""

    apart: bool = False
    words = "with its vectors handed in"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, and all vectors."""
        return [draw.tokens(), draw.condition(draw.samples, draw.pieces * draw.dim)]

    def theirs(self, inputs: Sequence[Tensor]) -> list[Any]:
        """Hand the vectors over."""
        x, vectors = inputs
        return [x, vectors.unflatten(-1, (-1, x.shape[-1])) if self.apart else vectors]


@dataclass(frozen=True)
class WithTable(Condition):
    """A vector of each sample or, ``each``, token is handed in, and a table to whose rows it is added."""

    each: bool = False
    words = "with a table handed in"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, a vector, and a table."""
        samples = (draw.samples, draw.length) if self.each else (draw.samples,)
        table = draw.condition(draw.pieces, draw.dim, further=1)
        return [draw.tokens(), draw.condition(*samples, draw.dim), table]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Add both."""
        x, vector, table = inputs
        return method(x, (vector.unsqueeze(-2) + table).flatten(-2))


class LastTokens(OfTokens):
    """Only the last tokens are asked for, by their number."""

    words = "with the number of the last tokens that are asked for"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, a condition of each, and a number."""
        return [*super().inputs(draw), torch.tensor(1 + (draw.length + draw.seed) // 2 % draw.length)]

    def theirs(self, inputs: Sequence[Tensor]) -> list[Any]:
        """Hand the number over as one."""
        return [*inputs[:-1], int(inputs[-1])]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Take the last ones."""
        x, condition, last = inputs
        return method(x[:, -int(last) :], condition[:, -int(last) :])


class Masked(OfTokens):
    """A number of each token is handed in besides, which multiplies what is made of it."""

    words = "with a mask that multiplies the result"

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, a condition of each, and numbers."""
        return [*super().inputs(draw), draw.condition(draw.samples, draw.length, further=1)]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """Multiply."""
        x, condition, mask = inputs
        return method(x, condition) * mask.unsqueeze(-1)


@dataclass(frozen=True)
class Shared(Condition):
    """Vectors that all blocks share are handed in besides: three, or as many as the norm has, or none."""

    vectors: int | None = None

    def inputs(self, draw: Draw) -> list[Tensor]:
        """Tokens, a condition, and three vectors."""
        inputs = super().inputs(draw)
        return inputs if self.vectors == 0 else [*inputs, draw.condition(draw.samples, 3 * draw.dim, further=1)]

    def theirs(self, inputs: Sequence[Tensor]) -> list[Any]:
        """Hand over as many vectors as are taken."""
        x, condition, *shared = inputs
        return [x, condition, *(one[:, : (self.vectors or 3) * x.shape[-1]] for one in shared)]

    def ours(self, method: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """A tensor where there is no gate."""
        outputs = method(*inputs)
        return outputs if len(outputs) > 1 else outputs[0]
