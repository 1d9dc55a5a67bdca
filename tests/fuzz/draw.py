"""What a case is made of, drawn from its number: sizes, memory layouts, types, values, and now and then a mistake."""

from __future__ import annotations

import random

import torch
from torch import Tensor

# Sizes around everything that the kernels count in: lanes of 2 to 16, four of them, rows and additions (16, 64), blocks
# of 512, stretches of 1024; small ones more often.
SIZES = [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, 12, 13, 15, 16, 17, 24, 31, 32, 33, 47, 60, 63, 64, 65, 67, 96, 100]
SIZES += [127, 128, 129, 255, 256, 257, 511, 512, 513, 767, 1023, 1024, 1025, 2047, 2049, 4097]
DTYPES = [torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64]
OFFSETS = [1.0, 1e2, 1e4, 1e6]
BOUNDS = {torch.float16: 6e4}
HUGE = 2.0**100


class Draw:
    """The random choices of one case."""

    def __init__(self, number: int, seed: int):
        self.random = random.Random(f"{seed}:{number}")
        self.torch = torch.Generator().manual_seed(self.random.getrandbits(48))
        self.special = self.chance(0.04)  # NaN, infinity and what has no square in float32 take part
        self.budget = 70000 if self.chance(0.02) else 6000  # entries; beyond 32768 the threads share the work

    def chance(self, share: float) -> bool:
        """True in a share of the cases."""
        return self.random.random() < share

    def one_of(self, *choices):
        """Any of them."""
        return self.random.choice(choices)

    def shape(self, rank: int) -> tuple[int, ...]:
        """Sizes of ``rank`` axes, within the budget in all; an empty one now and then."""
        sizes, room = [1] * rank, self.budget
        for axis in self.random.sample(range(rank), rank):
            sizes[axis] = self.random.choice([size for size in SIZES if size <= room])
            room //= sizes[axis]
        if self.chance(0.01):
            sizes[self.random.randrange(rank)] = 0
        return tuple(sizes)

    def dtype(self) -> torch.dtype:
        """The type of an input."""
        return self.random.choice(DTYPES)

    def parameter_type(self, dtype: torch.dtype) -> torch.dtype:
        """That of the input, float32, or any."""
        return self.random.choice([dtype, torch.float32, self.random.choice(DTYPES)])

    def numbers(self, shape: tuple[int, ...]) -> Tensor:
        """Normal numbers in float64."""
        return torch.randn(shape, generator=self.torch, dtype=torch.float64)

    def values(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Values of one of many kinds."""
        x, kind = self.numbers(shape), self.random.randrange(12)
        if kind < 3:
            x = x * self.one_of(0.01, 1.0, 1.0, 10.0) + self.one_of(-1, 1) * self.random.choice(OFFSETS)
        elif kind == 3:  # an offset of its own for each channel
            x = x + 10.0 ** self.random.randrange(7) * self.numbers((1, *shape[1:2], *[1] * (len(shape) - 2)))
        elif kind == 4:
            x = x * self.one_of(1e-20, 1e-10, 1e-5, 1e3)
        elif kind == 5:
            x = x.clamp(-1, 1) * 6e4
        elif kind == 6:
            x = torch.full_like(x, self.one_of(0.0, 1.0, -1e4 / 3, 6e4))
        elif kind == 7:
            x = x.round()
        elif kind == 8:
            x = torch.where(x > 1.5, x, 0)
        elif kind == 9 and x.numel():
            x.view(-1)[self.random.randrange(x.numel())] = self.one_of(1e3, -6e4)
        bound = BOUNDS.get(dtype)
        return self._spoiled((x if bound is None else x.clamp(-bound, bound)).to(dtype), HUGE, -HUGE)

    def _spoiled(self, x: Tensor, *more: float) -> Tensor:
        if self.special and x.numel() and self.chance(0.5):
            for _ in range(self.random.randrange(1, 3)):
                x.view(-1)[self.random.randrange(x.numel())] = self.one_of(torch.nan, torch.inf, -torch.inf, *more)
        return x

    def laid_out(self, x: Tensor) -> Tensor:
        """The same numbers, elsewhere in memory: in another order, with gaps, off the grid, all in one place."""
        kind = self.random.randrange(9)
        if kind == 0 and x.dim() > 2:
            return x.movedim(1, -1).contiguous().movedim(-1, 1)
        if kind == 1 and x.dim() > 1:
            a, b = self.random.sample(range(x.dim()), 2)
            return x.transpose(a, b).contiguous().transpose(a, b)
        if kind == 2 and x.dim():
            wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan, dtype=x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        if kind == 3:
            away = self.random.randrange(1, 4)
            return torch.cat([torch.full((away,), torch.nan, dtype=x.dtype), x.flatten()])[away:].view(x.shape)
        if kind == 4 and x.dim() and x.shape[0] > 1:
            return x[:1].expand(x.shape)
        if kind == 5 and x.dim():
            return torch.cat([x, x], -1)[..., x.shape[-1] :]
        return x.contiguous()

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An input."""
        return self.laid_out(self.values(shape, dtype))

    def parameter(self, shape: tuple[int, ...], dtype: torch.dtype, *, absent: float = 0.3, around: float = 0.0):
        """A gain or shift, perhaps None; in few cases of a wrong length, of more axes than one, or a single number."""
        if self.chance(absent):
            return None
        if self.chance(0.03):
            shape = self.one_of((shape[-1] + 1,), (max(1, shape[-1] - 1),), (shape[-1], 1), (2, shape[-1]), ())
        elif self.chance(0.05):
            shape = (1,)
        p = (self.numbers(shape) * self.one_of(0.1, 1.0, 1.0) + around).to(self.parameter_type(dtype))
        return self.laid_out(self._spoiled(p)) if shape else p

    def eps(self) -> float:
        """A small number, rarely 0."""
        return self.one_of(1e-12, 1e-6, 1e-5, 1e-3, 1.0, 1e-5, 0.0 if self.chance(0.3) and not self.special else 1e-6)

    def groups(self, channels: int) -> int:
        """Mostly a divisor of the channels."""
        if self.chance(0.05):
            return self.one_of(0, -1, channels + 1, 5, 3)
        return self.random.choice([d for d in range(1, channels + 1) if channels % d == 0] or [1])

    def cotangent(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """What is sent back for an output like ``x``."""
        grad = self.numbers(tuple(x.shape)) * self.one_of(1.0, 1.0, 1e-3, 30.0)
        if self.chance(0.1):
            grad = torch.ones_like(grad)
        return self.laid_out(grad.to(dtype))
