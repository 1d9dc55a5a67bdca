"""Somebody's module beside its explanation, with the same numbers in both, and what counts as a difference.

What rounding allows is measured on the explanation itself: how far its result moves when its input moves by a unit of
the precision at work.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from normkit.surgery.recognition.inputs import Shape, draw
from normkit.surgery.recognition.specimen import Specimen, carry, carry_counts

UNIT = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
STEPS = 64  # units of rounding that a result may be off by, for its row's largest number
FEW = 2  # features of a row whose gradients cancel
CANCELLED = {"at an offset of 1e3": 1e6}  # units that are lost where a variance is taken from sums of squares


class Differs(Exception):
    """Where and how far two modules differ."""


class Final(Differs):
    """The same, of what is equal in numbers and gradients already: nothing else in the catalogue explains it."""


@contextlib.contextmanager
def final() -> Iterator[None]:
    """Let no other explanation be tried for what differs within."""
    try:
        yield
    except Differs as difference:
        raise Final(str(difference)) from None


class Pair:
    """Somebody's module and its explanation, with the same numbers in both."""

    def __init__(
        self, module: nn.Module, explained: nn.Module, carried: Mapping[str, str], dtype: torch.dtype, **drawing
    ):
        self.theirs = Specimen(module, dtype, **drawing)
        self.ours = Specimen(explained, dtype, drawn=False)
        self.carried, self.type, self.idle = carried, dtype, 0.0  # idle: see :meth:`measure_idle`
        carry(self.ours.tensors, self.theirs.tensors, carried)
        carry_counts(self.ours.module, self.theirs.module)
        self.theirs.keep(), self.ours.keep()

    def restore(self) -> None:
        """Put the buffers back to where they began."""
        self.theirs.restore()
        self.ours.restore()

    def measure_idle(self, inputs: Sequence[Tensor]) -> Tensor:
        """Measure the parameters that enter nothing: one that adds and subtracts such a number rounds by its size.

        Returns what ours makes of the inputs.
        """
        own = [t for name in self.carried if isinstance(t := self.ours.tensors[name], nn.Parameter)]
        y = self.ours(*inputs)
        slopes = torch.autograd.grad(y.sum(), own, allow_unused=True) if own and y.requires_grad else own
        self.idle = max(
            (float(t.abs().max()) for t, slope in zip(own, slopes, strict=True) if slope is None), default=0.0
        )
        return y

    def train(self, mode: bool) -> None:
        """Set the mode of both."""
        self.theirs.train(mode)
        self.ours.train(mode)

    @property
    def still(self) -> bool:
        """Whether the running estimates take a share of 0 of each batch."""
        return any(getattr(part, "momentum", None) == 0 for part in self.ours.module.modules())

    def moved(self) -> list[str]:
        """Return the names of the user's tensors that the explanation does not have and that have changed."""
        start = self.theirs.start
        spare = [(n, b) for n, b in self.theirs.module.named_buffers() if n not in self.carried.values()]
        return [n for n, b in spare if b.is_floating_point() and not torch.equal(b, start[n])]

    @property
    def learned_names(self) -> dict[str, str]:
        """Our names of what is a parameter on both sides, and somebody's."""
        both = {our: (self.ours.tensors[our], self.theirs.tensors[their]) for our, their in self.carried.items()}
        return {o: self.carried[o] for o, sides in both.items() if all(isinstance(t, nn.Parameter) for t in sides)}

    def learned(self) -> list[tuple[Tensor, Tensor]]:
        """Somebody's parameters beside ours."""
        return [(self.theirs.tensors[their], self.ours.tensors[our]) for our, their in self.learned_names.items()]

    def buffers(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """The running estimates that both have."""
        learned = dict(self.ours.module.named_parameters())
        for ours, theirs in self.carried.items():
            if ours not in learned:
                yield theirs, self.theirs.tensors[theirs], self.ours.tensors[ours]


@dataclass
class Compared:
    """What is compared: a module and its explanation in one type, where a unit of rounding is known."""

    module: nn.Module
    explained: nn.Module
    carried: Mapping[str, str]
    shapes: Sequence[Shape]
    further: int
    unit: float
    exact: torch.dtype

    def pair(self, seed: int) -> Pair:
        """Both, with numbers drawn from a seed."""
        return Pair(self.module, self.explained, self.carried, self.exact, seed=seed)


def gradients(
    side: Specimen, inputs: Sequence[Tensor], names: Iterable[str], send: Callable[[Tensor], Tensor]
) -> list[Any]:
    """Of one call the result, and the gradients of the input and of parameters; None for what has none.

    send: what comes down to a result in the backward pass.
    """
    x, *others = inputs
    x = x.detach().clone().requires_grad_()
    y = side(x, *others)
    leaves = [x, *(side.tensors[name] for name in names)]
    if not y.requires_grad:
        return [y, *(None for _ in leaves)]
    return [y.detach(), *torch.autograd.grad(y, leaves, send(y), allow_unused=True)]


def terms(module: nn.Module, x: Tensor, sent: Tensor, shape: Shape) -> Tensor:
    """How large the terms are whose sum is a gradient of the input, where a row has so few features that they cancel.

    One feature, and two that are centred, are 1 or -1 once they are normalized, whatever they were. Of more it is 0.
    """
    if math.prod(shape.extent) > FEW:
        return torch.zeros_like(x)
    norm: Any = module if hasattr(module, "card") else module.norm  # with layers behind it
    away = x.detach()
    if "shift" in norm.card.invariant:
        away = away - away.mean(shape.axes, keepdim=True)
    size = (away.square().mean(shape.axes, keepdim=True) + (getattr(norm, "eps", None) or 0.0)).sqrt()
    gain = max((float(t.detach().abs().max()) for t in norm.parameters()), default=1.0)
    return (sent.abs().amax(shape.axes, keepdim=True) * gain / size).expand_as(x)


def draw_inputs(shape: Shape, numbers: str, further: int, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Return the inputs of one call; what comes besides the first is normal."""
    return [draw(shape, numbers if i == 0 else "normal", seed=seed + i).to(dtype) for i in range(1 + further)]


@lru_cache(maxsize=16)
def signs(sizes: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Random signs; of the first seed neighbours have opposite ones, which moves the difference of any two."""
    if seed == 0:
        return torch.stack(torch.meshgrid(*map(torch.arange, sizes), indexing="ij")).sum(0).to(dtype) % 2 * 2 - 1
    return torch.randint(0, 2, sizes, generator=torch.Generator().manual_seed(seed)).to(dtype) * 2 - 1


def name_case(shape: Shape, mode: bool) -> str:
    """Return what a shape and a mode are called."""
    return f"shape {shape.sizes}, {'training' if mode else 'evaluation'}"


def fitting(shapes: Sequence[Shape], mode: bool, pair: Pair, further: int) -> list[Shape]:
    """The shapes that both take in this mode."""
    matches = []
    for shape in shapes:
        inputs = draw_inputs(shape, "normal", further, pair.type)
        try:
            pair.restore()
            pair.theirs(*inputs)
            pair.ours(*inputs)
        except Exception:
            continue
        matches.append(shape)
    if not matches:
        raise Differs(f"it takes none of the shapes in {'training' if mode else 'evaluation'}")
    return matches


def difference(
    theirs: Tensor,
    ours: Tensor,
    axes: tuple[int, ...],
    unit: float,
    where: str,
    slack: Callable[[], Tensor] | None = None,
) -> float:
    """Return the largest difference, relative to the largest number of its row; raise where it is more than rounding.

    slack: measures how far the explanation itself moves where its input is rounded otherwise. It is called only where
    the numbers differ by more than a few units of their row, since it takes calls of its own.
    """
    if theirs.shape != ours.shape:
        raise Differs(f"shape {tuple(theirs.shape)}, not {tuple(ours.shape)}, {where}")
    if not ours.numel():
        return 0.0
    if (close := _all_close(theirs, ours, axes, unit)) is not None:
        return close
    room = None if slack is None else slack()
    if room is not None and (close := _all_close(theirs, ours, axes, unit, room)) is not None:
        return close
    most = ours.abs().nan_to_num(0, 0, 0).amax(axes, keepdim=True)
    allowed = _tolerance(most, axes, unit, room)
    known = ours.isfinite() & allowed.isfinite()
    apart = (theirs - ours).abs()
    wrong = known & ~(apart <= allowed)  # not a number where a number is wanted, too
    if "infinities" in where:  # where they go is how a sum is ordered, that they show is not
        wrong = wrong | (_not_finite(ours, axes) & ~_not_finite(theirs, axes))
    elif not known.any() or (known.sum() < ours.numel() and any(word in where for word in ("zeros", "no number"))):
        wrong = wrong | (ours.isnan() != theirs.isnan())
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        raise Differs(f"{_both(theirs[tuple(at)].item(), ours[tuple(at)].item())}, {where}")
    share = (apart / most.clamp(min=1e-300))[known & (most > 0)]
    return float(share.max()) if share.numel() else 0.0


def _both(one: float, other: float) -> str:
    """Write two numbers in as many digits as tell them apart.

    >>> _both(1.5, 2.25), _both(0.1, 0.1 + 1e-9)
    ('1.5, not 2.25', '0.1, not 0.100000001')
    """
    written = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (6, 9, 12, 17))
    return ", not ".join(next((pair for pair in written if pair[0] != pair[1]), (str(one), str(other))))


def cancels(slope: Tensor, sent: Tensor, unit: float) -> bool:
    """Whether a parameter's gradient is what rounding leaves of the numbers sent, whose sum cancels."""
    return bool(slope.abs().max() <= STEPS * unit * sent.abs().sum() / slope.numel())


def _all_close(
    theirs: Tensor, ours: Tensor, axes: tuple[int, ...], unit: float, slack: Tensor | None = None
) -> float | None:
    """The largest difference where all numbers are finite and near, which most comparisons are; None where not."""
    most = ours.abs().amax(axes, keepdim=True)
    allowed = _tolerance(most, axes, unit, slack)
    apart = (theirs - ours).abs_().amax(axes, keepdim=True)  # NaN where one of the row is
    if not bool(((apart <= allowed) & (allowed < math.inf)).all()):
        return None
    return float((apart / most).nan_to_num_(0, posinf=0).max())


def _tolerance(most: Tensor, axes: tuple[int, ...], unit: float, slack: Tensor | None) -> Tensor:
    steps = STEPS * unit * most + (STEPS * unit if unit < 1e-11 else 1e-300)
    return steps if slack is None else 8 * slack.amax(axes, keepdim=True) + steps


def _not_finite(t: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Whether a row holds what is no finite number."""
    return (~t.isfinite()).to(t.dtype).amax(axes, keepdim=True) > 0
