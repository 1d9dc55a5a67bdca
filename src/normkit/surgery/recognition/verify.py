"""Whether two modules compute the same: numbers, gradients and state, to what rounding allows and no more.

What rounding allows is measured on the explanation itself: how far its result moves when its input moves by a unit of
the precision at work.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.inputs import NUMBERS, Shape, draw
from normkit.surgery.recognition.specimen import SPREAD, Specimen, carry, carry_counts

CALLS = 12
GRADIENTS_AT = (
    "normal",
    "of many sizes",
    "at an offset of 1e3",
    "with zeros",
    "of size 1e6",
    "of size 1e-7",
    "negative",
)
HALVES = (torch.bfloat16, torch.float16)
UNIT = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
PERTURBED = 3
STEPS = 64  # units of rounding that a result may be off by, for its row's largest number
HALF_STEPS = 32, 4.0, 0.5  # where every step is rounded to half precision: at most, in the mean, and all one way
AGAIN = range(6, 14)


class Differs(Exception):
    """Where and how far two modules differ."""


@dataclass
class Verdict:
    """What was tried, and the largest difference in each type, relative to the largest number of its row."""

    error: dict[str, float] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)


class Pair:
    """Somebody's module and its explanation, with the same numbers in both."""

    def __init__(
        self, module: nn.Module, explained: nn.Module, carried: Mapping[str, str], dtype: torch.dtype, **drawing
    ):
        self.theirs = Specimen(module, dtype, **drawing)
        self.ours = Specimen(explained, dtype, drawn=False)
        self.carried = carried
        carry(self.ours.tensors, self.theirs.tensors, carried)
        carry_counts(self.ours.module, self.theirs.module)
        self._start = [
            {name: b.clone() for name, b in side.module.named_buffers()} for side in (self.theirs, self.ours)
        ]

    def restore(self) -> None:
        """Put the buffers back to where they began."""
        for side, start in zip((self.theirs, self.ours), self._start, strict=True):
            for name, buffer in side.module.named_buffers():
                buffer.data.copy_(start[name])

    def train(self, mode: bool) -> None:
        """Set the mode of both."""
        self.theirs.train(mode)
        self.ours.train(mode)

    def buffers(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """The running estimates that both have."""
        learned = dict(self.ours.module.named_parameters())
        for ours, theirs in self.carried.items():
            if ours not in learned:
                yield theirs, self.theirs.tensors[theirs], self.ours.tensors[ours]


class Gradients(NamedTuple):
    """Of one call: the result, and the gradients of the input and of the parameters that both have."""

    y: Tensor
    x: Tensor | None
    parameters: list[Tensor | None]


def verify(
    module: nn.Module,
    explained: nn.Module,
    carried: Mapping[str, str],
    shapes: Sequence[Shape],
    further: int,
    unit: float,
) -> Verdict:
    """Return what was tried, or raise :class:`Differs` with the first difference."""
    verdict = Verdict()
    exact = torch.float64 if _takes(module, torch.float64, shapes, further) else torch.float32
    unit = max(unit, UNIT[exact] / 2)
    largest = 0.0
    for spread, seed in ((1.0, 1), (SPREAD, 2)):
        pair = Pair(module, explained, carried, exact, spread=spread, seed=seed)
        for mode in (False, True):
            pair.train(mode)
            for shape in _fitting(shapes, mode, pair, further):
                for numbers in NUMBERS:
                    inputs = _inputs(shape, numbers, further, exact)
                    largest = max(largest, _compare(pair, inputs, shape, unit, f"{numbers}, {_name(shape, mode)}"))
                for numbers in GRADIENTS_AT:
                    inputs = _inputs(shape, numbers, further, exact)
                    _compare_gradients(pair, inputs, shape, unit, f"{numbers}, {_name(shape, mode)}")
    verdict.error["float64" if exact is torch.float64 else "float32"] = largest
    verdict.evidence.append(
        f"equal in {str(exact)[6:]} on {len(NUMBERS)} kinds of numbers, {len(shapes)} shapes, in training and "
        f"evaluation, with gradients, to {largest:.1e}"
    )
    _many_calls(module, explained, carried, shapes, further, unit, exact)
    verdict.evidence.append(f"equal in state and result over {CALLS} calls in a row")
    _no_other_tensor(module, explained, carried, shapes, further, exact)
    if exact is torch.float64:
        verdict.error["float32"] = _in_float32(module, explained, carried, shapes, further)
    return verdict


def _takes(module: nn.Module, dtype: torch.dtype, shapes: Sequence[Shape], further: int) -> bool:
    try:
        Specimen(module, dtype)(*_inputs(shapes[0], "normal", further, dtype))
    except Exception:
        return False
    return True


def _inputs(shape: Shape, numbers: str, further: int, dtype: torch.dtype) -> list[Tensor]:
    return [draw(shape, numbers if i == 0 else "normal", seed=i).to(dtype) for i in range(1 + further)]


def _name(shape: Shape, mode: bool) -> str:
    return f"shape {shape.sizes}, {'training' if mode else 'evaluation'}"


def _fitting(shapes: Sequence[Shape], mode: bool, pair: Pair, further: int) -> list[Shape]:
    """The shapes that both take in this mode."""
    found = []
    for shape in shapes:
        inputs = _inputs(shape, "normal", further, _type(pair))
        try:
            pair.restore()
            pair.theirs(*inputs)
            pair.ours(*inputs)
        except Exception:
            continue
        found.append(shape)
    if not found:
        raise Differs(f"it takes none of the shapes in {'training' if mode else 'evaluation'}")
    return found


def _type(pair: Pair) -> torch.dtype:
    return next((t.dtype for t in pair.theirs.tensors.values()), torch.float64)


def _perturbed(inputs: Sequence[Tensor], unit: float, seed: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, inputs[0].shape, generator=g).to(inputs[0].dtype) * 2 - 1
    return [inputs[0] * (1 + 2 * unit * signs), *inputs[1:]]


def _compare(pair: Pair, inputs: Sequence[Tensor], shape: Shape, unit: float, where: str) -> float:
    """Compare one call's results and running estimates; return the largest difference."""
    with torch.no_grad():
        slack = torch.zeros_like(inputs[0])
        pair.restore()
        ours = pair.ours(*inputs)
        state = [b.clone() for _, _, b in pair.buffers()]
        moved = [torch.zeros_like(b) for b in state]
        for seed in range(PERTURBED):
            pair.restore()
            slack = torch.maximum(slack, (pair.ours(*_perturbed(inputs, unit, seed)) - ours).abs())
            moved = [
                torch.maximum(m, (b - s).abs()) for m, s, (_, _, b) in zip(moved, state, pair.buffers(), strict=True)
            ]
        pair.restore()
        theirs = pair.theirs(*inputs)
        found = _difference(theirs, ours, slack, shape.axes, unit, where)
        for (name, their, _), our, move in zip(pair.buffers(), state, moved, strict=True):
            _difference(their.reshape(our.shape), our, move, tuple(range(our.ndim)), unit, f"{name}, {where}")
    return found


def _difference(theirs: Tensor, ours: Tensor, slack: Tensor, axes: tuple[int, ...], unit: float, where: str) -> float:
    if theirs.shape != ours.shape:
        raise Differs(f"shape {tuple(theirs.shape)}, not {tuple(ours.shape)}, {where}")
    if not ours.numel():
        return 0.0
    most = ours.abs().nan_to_num(0, 0, 0).amax(axes, keepdim=True)
    allowed = 8 * slack.amax(axes, keepdim=True) + STEPS * unit * most + (STEPS * unit if unit < 1e-11 else 1e-300)
    known = ours.isfinite() & allowed.isfinite()
    apart = (theirs - ours).abs()
    wrong = known & ~(apart <= allowed)  # not a number where a number is wanted, too
    if not known.any() or (known.sum() < ours.numel() and "zeros" in where):
        wrong = wrong | (ours.isnan() != theirs.isnan())
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        raise Differs(f"{theirs[tuple(at)].item():.6g}, not {ours[tuple(at)].item():.6g}, {where}")
    share = (apart / most.clamp(min=1e-300))[known & (most > 0)]
    return float(share.max()) if share.numel() else 0.0


def _gradients(side: Specimen, inputs: Sequence[Tensor], names: Sequence[str]) -> Gradients:
    x, *others = inputs
    x = x.detach().clone().requires_grad_()
    y = side(x, *others)
    sent = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(y.dtype)
    wanted = [x, *(side.tensors[name] for name in names)]
    if not y.requires_grad:
        return Gradients(y, None, [None for _ in names])
    found = torch.autograd.grad(y, wanted, sent, allow_unused=True)
    return Gradients(y.detach(), found[0], list(found[1:]))


def _compare_gradients(pair: Pair, inputs: Sequence[Tensor], shape: Shape, unit: float, where: str) -> None:
    learned = [o for o in pair.carried if isinstance(pair.ours.tensors[o], nn.Parameter)]
    learned = [o for o in learned if isinstance(pair.theirs.tensors[pair.carried[o]], nn.Parameter)]
    pair.restore()
    theirs = _gradients(pair.theirs, inputs, [pair.carried[o] for o in learned])
    pair.restore()
    ours = _gradients(pair.ours, inputs, learned)
    other = []
    for seed in range(PERTURBED):
        pair.restore()
        other.append(_gradients(pair.ours, _perturbed(inputs, unit, seed), learned))
    pairs = itertools.chain(
        [("the input", theirs.x, ours.x, [o.x for o in other], shape.axes)],
        (
            (pair.carried[name], t, o, [found.parameters[i] for found in other], None)
            for i, (name, t, o) in enumerate(zip(learned, theirs.parameters, ours.parameters, strict=True))
        ),
    )
    for name, their, our, moved, axes in pairs:
        if their is None or our is None:
            if (their is None or not their.any()) and (our is None or not our.any()):
                continue
            raise Differs(f"{'no' if their is None else 'a'} gradient for {name}, {where}")
        slack = torch.stack([(m - our).abs() for m in moved if m is not None]).amax(0)
        every = tuple(range(our.ndim)) if axes is None else axes
        # a sum over rows can cancel; each of its terms may be off by what its own size allows
        _difference(their.reshape(our.shape), our, slack, every, 8 * unit, f"gradient of {name}, {where}")


def _many_calls(module, explained, carried, shapes, further, unit, exact) -> None:
    """Twelve calls in either mode, with what is kept between them, and the same result for the same input twice."""
    pair = Pair(module, explained, carried, exact, seed=3)
    for mode in (True, False):
        pair.train(mode)
        shape = _fitting(shapes, mode, pair, further)[0]
        pair.restore()
        before = specimen.plain(pair.theirs.module)
        for call in range(CALLS):
            inputs = [t * (1 + call) for t in _inputs(shape, "normal", further, exact)]
            with torch.no_grad() if call % 2 else torch.enable_grad():
                theirs, ours = pair.theirs(*inputs).detach(), pair.ours(*inputs).detach()
            where = f"call {call + 1}, {_name(shape, mode)}"
            _difference(theirs, ours, torch.zeros_like(ours), shape.axes, 64 * unit, where)
            for name, their, our in pair.buffers():
                _difference(
                    their.reshape(our.shape), our, 0 * our, tuple(range(our.ndim)), 64 * unit, f"{name}, {where}"
                )
        changed = [key for key, value in specimen.plain(pair.theirs.module).items() if before.get(key) != value]
        changed += sorted(_counts(pair.theirs) - _counts(pair.ours))
        if changed:
            raise Differs(f"{changed[0].lstrip('.')} changes from call to call")
    pair.train(False)
    pair.restore()
    inputs = _inputs(shape, "normal", further, exact)
    if not torch.equal(pair.theirs(*inputs).nan_to_num(), pair.theirs(*inputs).nan_to_num()):
        raise Differs("two calls with one input give two results")


def _counts(side: Specimen) -> set[str]:
    """The integers that a module keeps and that are not 0."""
    buffers = side.module.named_buffers()
    return {name.rpartition(".")[2] for name, b in buffers if not b.is_floating_point() and b.any()}


def _no_other_tensor(module, explained, carried, shapes, further, exact) -> None:
    """A parameter that the explanation has no place for must be of no use."""
    pair = Pair(module, explained, carried, exact, seed=4)
    spare = set(pair.theirs.tensors) - set(carried.values())
    for mode in (False, True):
        pair.train(mode)
        shape = _fitting(shapes, mode, pair, further)[0]
        inputs = _inputs(shape, "normal", further, exact)
        for name in spare:
            pair.restore()
            before = pair.theirs(*inputs).detach()
            with torch.no_grad():
                pair.restore()
                pair.theirs.tensors[name].mul_(1.5)
                after = pair.theirs(*inputs)
                pair.theirs.tensors[name].div_(1.5)
            if not torch.equal(before, after):
                raise Differs(f"{name} has no place in it")


def _in_float32(module, explained, carried, shapes, further) -> float:
    """The largest difference in float32, forward, with the module's own numbers."""
    pair = Pair(module, explained, carried, torch.float32, drawn=False)
    pair.train(False)
    unit = UNIT[torch.float32]
    found = [
        _compare(pair, _inputs(shape, numbers, further, torch.float32), shape, unit, f"float32, {numbers}")
        for shape in _fitting(shapes, False, pair, further)
        for numbers in ("normal", "of many sizes", "with zeros")
    ]
    return max(found)


class Half(NamedTuple):
    """How close an explanation comes in half precision, and how far somebody's module is from the true numbers.

    other: the share of results with other bits; units: units of rounding off the truth, at most; mean: in the mean;
    drift: all in one direction.
    """

    dtype: torch.dtype
    other: float
    units: float
    mean: float
    drift: float

    @property
    def rounded(self) -> bool:
        """Whether rounding at every step explains it."""
        return self.units <= HALF_STEPS[0] and self.mean <= HALF_STEPS[1] and abs(self.drift) <= HALF_STEPS[2]


def half(
    module: nn.Module, explained: nn.Module, carried: Mapping[str, str], shape: Shape, further: int, dtype
) -> Half | None:
    """Compare in a half precision, parameters too; None where somebody's module does not take it.

    Where results are off all one way, which of few channels may be chance, it is asked again with other parameters.
    """
    found = _half(module, explained, carried, shape, further, dtype, 5)
    if found is None or abs(found.drift) <= HALF_STEPS[2]:
        return found
    others = [_half(module, explained, carried, shape, further, dtype, seed) for seed in AGAIN]
    drifts = [found.drift, *(other.drift for other in others if other is not None)]
    return found._replace(drift=sum(drifts) / len(drifts))


def _half(
    module: nn.Module, explained: nn.Module, carried: Mapping[str, str], shape: Shape, further: int, dtype, seed: int
) -> Half | None:
    pair = Pair(module, explained, carried, dtype, seed=seed)
    pair.train(False)
    inputs = _inputs(shape, "normal", further, dtype)
    try:
        theirs = pair.theirs(*inputs)
    except Exception:
        return None
    ours = pair.ours(*inputs)
    true = Pair(module, explained, carried, torch.float64, seed=seed)
    _copy(pair, true)
    true.train(False)
    want = true.ours(*[t.double() for t in inputs])
    unit, got = UNIT[dtype], theirs.double()
    off = (got - want).abs() / (unit * want.abs().clamp(min=float(want.abs().mean()) / 4))
    drift = float((got * want).sum() / want.square().sum() - 1) / unit
    other = float((theirs.to(ours.dtype) != ours).double().mean())
    far = float(off.max()) if off.isfinite().all() else float("inf")
    return Half(dtype, other, far, float(off.square().mean().sqrt()), drift)


@torch.no_grad()
def _copy(source: Pair, target: Pair) -> None:
    """Give the exact pair the numbers that the half one has, rounded as they are."""
    for ours in source.carried:
        target.ours.tensors[ours].copy_(source.ours.tensors[ours])
