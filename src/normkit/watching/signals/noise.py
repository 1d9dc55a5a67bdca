"""The gradient noise scale, from the gradients that single examples give the gains and shifts of norms.

arXiv:2411.00999 finds that they predict the noise of all parameters, and they cost a sum over an activation. With
G_b the gradient of example b and G that of a batch of B, the mean of both,

    |G|² = (B |G_B|² - mean_b |G_b|²) / (B - 1),    S = (mean_b |G_b|² - |G_B|²) / (1 - 1 / B),    scale = S / |G|²

are without bias (arXiv:1812.06162); both are averaged over samples before they are divided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normkit.columns import number_of
from normkit.watching.finding import number
from normkit.watching.signals.signal import vector
from normkit.watching.store import MEAN

NUMBERS = dict.fromkeys(("one_square", "batch_square", "examples"), MEAN)
LEAST = 1e-3  # of a gain, below which its input is not known from its output


@dataclass(frozen=True)
class NoiseScale:
    """The noise scale, in examples, beside those of a batch, and the samples that it was taken of."""

    value: float
    batch: float
    samples: int

    def __str__(self) -> str:
        samples = number_of(self.samples, "sample")
        if not self.value < float("inf"):
            return f"noise scale cannot be told from {samples}: the mean gradient is not apart from noise"
        if not self.value:
            return f"noise scale 0 examples, of {samples}: the examples of a batch have one gradient"
        ratio = self.batch / self.value
        times = f"{number(ratio)} times what" if ratio >= 1 else f"a {number(1 / ratio)}th of what"
        return (
            f"noise scale {number(self.value)} examples, of {samples}; "
            f"your batch of {number(self.batch)} is {times} the noise asks for"
        )


class Noise:
    """Gathers the gradients of examples over one sampled step."""

    def __init__(self) -> None:
        self.gathered: dict[tuple[int, int, str], Tensor] = {}  # of a call of the model, a module and a parameter
        self.examples: list[int] = []  # of each call of the model
        self.ended = False

    def called(self, examples: int) -> None:
        """Note that the model was called on so many examples."""
        self.examples.append(0 if self.ended else examples)

    def end(self) -> None:
        """Leave out further calls: an optimizer has stepped, and theirs are other gradients."""
        self.ended = bool(self.examples)

    def listens(self, module: nn.Module, y: Tensor, axis: int, call: int) -> Callable[[Tensor], None]:
        """Return a hook for the gradient of what a norm gives, in a call of the model."""
        version = y._version

        def take(slope: Tensor) -> None:
            examples = self.examples[call] if call < len(self.examples) else 0
            if y._version == version and examples and y.shape[0] % examples == 0:
                self._take(call, module, *(_rows(x, axis, examples) for x in (y, slope)))

        return take

    def _take(self, call: int, module: nn.Module, y: Tensor, slope: Tensor) -> None:
        """Add what each example gives, of (examples, rows, channels)."""
        gain, shift = (getattr(module, name, None) for name in ("weight", "bias"))
        if isinstance(gain, nn.Parameter) and gain.shape == y.shape[-1:]:
            whole = _plain(gain) + float(getattr(module, "offset", 0.0) or 0.0)
            known = whole.abs() > LEAST
            x = (y - _plain(shift) if isinstance(shift, Tensor) else y) / torch.where(known, whole, 1.0)
            self._add((call, id(module), "gain"), (slope * x).sum(1) * known)
        if isinstance(shift, nn.Parameter) and shift.shape == y.shape[-1:]:
            self._add((call, id(module), "shift"), slope.sum(1))

    def _add(self, key: tuple[int, int, str], square: Tensor) -> None:
        self.gathered[key] = self.gathered[key] + square if key in self.gathered else square

    def values(self) -> Tensor | None:
        """Return the mean of |G_b|², |G_B|² and B; None where no norm was heard, or one example."""
        parts: dict[tuple[int, str], list[Tensor]] = {}
        for (_, module, name), grads in self.gathered.items():
            parts.setdefault((module, name), []).append(grads)
        if not parts or len({sum(map(len, calls)) for calls in parts.values()}) > 1:
            return None
        whole = [torch.cat(calls) for calls in parts.values()]
        count = len(whole[0])
        if count < 2:
            return None
        one = sum(grads.square().sum() for grads in whole) * count  # examples' own gradients are count times theirs
        batch = sum(grads.sum(0).square().sum() for grads in whole)
        return vector(one, batch, torch.tensor(float(count), device=batch.device))  # type: ignore[union-attr, arg-type]


def _plain(p: Tensor) -> Tensor:
    """The numbers of a parameter, all of them where processes share it."""
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().float()


def _rows(x: Tensor, axis: int, examples: int) -> Tensor:
    x = x.detach().movedim(axis, -1).float()
    return x.reshape(examples, -1, x.shape[-1])


def noise_scale(one: Tensor, batch: Tensor, examples: Tensor) -> NoiseScale:
    """Return the noise scale of samples of :data:`NUMBERS`.

    >>> print(noise_scale(torch.tensor([10.0]), torch.tensor([2.0]), torch.tensor([32.0])))
    noise scale 4.74 examples, of 1 sample; your batch of 32 is 6.75 times what the noise asks for
    """
    if not len(one):
        raise ValueError(
            "noise_scale: no sample has the gradients of examples: the model must have a norm with a gain that does "
            "not mix examples, be called with a batch along its first axis, and be watched with its optimizer"
        )
    power = ((examples * batch - one) / (examples - 1)).mean()
    noise = ((one - batch) / (1 - 1 / examples)).mean().clamp(min=0.0)  # below 0 by rounding alone
    value = float(noise / power) if power > 0 else float("inf")
    return NoiseScale(value, float(examples.mean()), len(one))
