"""What a module makes of a few inputs, to be compared with what candidates make of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.surgery.recognition import candidates
from normkit.surgery.recognition.candidates import Candidate
from normkit.surgery.recognition.inputs import Shape, draw
from normkit.surgery.recognition.match import Followed
from normkit.surgery.recognition.pair import Differs
from normkit.surgery.recognition.specimen import Specimen, carry

LARGE = 1e3
EXACT = (torch.float64, torch.float32)
SMALL = ("samples of many sizes", "channels of many sizes", "of many sizes", "normal")  # the most telling first


def accepted_shapes(module: nn.Module, tried: Sequence[Shape], further: int) -> list[Shape]:
    """The shapes that a module takes and keeps: in both modes, or where there is none such, in either."""
    modes = [
        [shape for shape in tried if any(takes(module, shape, further, dtype, mode) for dtype in EXACT)]
        for mode in (False, True)
    ]
    return [shape for shape in modes[0] if shape in modes[1]] or modes[0] or modes[1]


def takes(module: nn.Module, shape: Shape, further: int, dtype: torch.dtype, mode: bool) -> bool:
    """Whether a module takes an input of a shape, in a type and a mode, and keeps the shape."""
    inputs = [draw(shape, seed=i).to(dtype) for i in range(1 + further)]
    try:
        y = Specimen(module, dtype).train(mode).module(*inputs)
    except Exception:
        return False
    if isinstance(y, tuple | list) and y and torch.is_tensor(y[0]) and y[0].shape == inputs[0].shape:
        raise Differs(f"it returns {len(y)} values, and a norm one tensor")
    return torch.is_tensor(y) and y.shape == inputs[0].shape


class Probe:
    """What a module makes of a few inputs, to be compared with what candidates make of them.

    ``module`` is without the layers ``behind`` that the ``whole`` has; ``open_`` where nothing tells its width.
    """

    def __init__(
        self,
        module: nn.Module,
        shapes: Sequence[Shape],
        further: int,
        whole: nn.Module,
        behind: Sequence[str] = (),
        open_: bool = False,
    ):
        self.module, self.shapes, self.further = module, shapes, further
        self.whole, self.behind, self.open = whole, behind, open_
        self.exact = (
            torch.float64 if takes(module, shapes[0], further, torch.float64, module.training) else torch.float32
        )
        self.theirs, self.large = Specimen(module, self.exact, seed=1), self._large()
        self.answers = {mode: self._answers(mode) for mode in (False, True)}
        self.modes = [mode for mode, answers in self.answers.items() if "normal" in answers]
        self.distinct = self.modes[:1] if self._same_in_both() else self.modes

    @property
    def idle(self) -> bool:
        """Whether it changes nothing, as some methods do not either without gain and activation."""
        answers = [self.answers[mode]["normal"] for mode in self.modes]
        return all(torch.equal(inputs[0].to(self.exact).double(), answer) for inputs, answer in answers)

    def _same_in_both(self) -> bool:
        """Whether it makes the same of everything in both modes."""
        both = [[output for _, output in self.answers[mode].values()] for mode in self.modes]
        return len(both) == 2 and len(both[0]) == len(both[1]) and all(map(torch.equal, *both))

    def _large(self) -> Specimen:
        """The same with buffers beside which no eps counts: they may be variances."""
        larger = Specimen(self.module, self.exact, seed=1)
        with torch.no_grad():
            for tensor in larger.tensors.values():
                if not isinstance(tensor, nn.Parameter):
                    tensor.mul_(LARGE**2)
        return larger

    def _answers(self, mode: bool) -> dict[str, tuple[list[Tensor], Tensor]]:
        answers: dict[str, tuple[list[Tensor], Tensor]] = {}
        for numbers in ("large", *SMALL):
            theirs = (self._large() if numbers == "large" else Specimen(self.module, self.exact, seed=1)).train(mode)
            for shape in self.shapes:
                inputs = [
                    draw(shape, "normal" if numbers == "large" else numbers, seed=i) for i in range(1 + self.further)
                ]
                if numbers == "large":
                    inputs[0] = inputs[0] * LARGE
                try:
                    with torch.no_grad():
                        answers[numbers] = inputs, theirs(*[t.to(self.exact) for t in inputs]).double()
                except Exception:
                    continue
                break
        return answers

    def screen(self, candidate: Candidate, bound: float) -> Iterator[tuple[float, dict[str, str]]]:
        """How far a candidate is off, for each way of carrying the tensors over; constants that are unknown aside.

        Above ``bound`` it may be any number above it.
        """
        try:
            ours = Specimen.of(candidate.build()).keep()
        except (ValueError, TypeError):
            return
        numbers = "large" if candidate.constants else "normal"
        for carried in candidates.carryings(ours.tensors, self.theirs.tensors):
            yield self._off(ours, carried, (numbers,), bound), carried

    def explanation(self, candidate: Candidate, carried: Mapping[str, str]) -> tuple[nn.Module, dict[str, str]]:
        """A candidate with the layers that the whole module has behind it, and the names of its tensors there."""
        norm = candidate.build()
        if not self.behind:
            return norm, dict(carried)
        layers = [copy.deepcopy(self.whole.get_submodule(name)) for name in self.behind]
        return Followed(norm, layers), {f"norm.{ours}": theirs for ours, theirs in carried.items()}

    def far(
        self,
        candidate: Candidate,
        carried: Mapping[str, str],
        more: Mapping[str, Any],
        kinds: Sequence[str],
        bound: float = math.inf,
    ) -> float:
        """The largest difference, relative to the largest number of its row, over some kinds of numbers.

        Where it is above ``bound``, it may be any number above it: the first such ends the calls.
        """
        return self._off(Specimen.of(candidate.build(**more)).keep(), carried, kinds, bound)

    def _off(self, ours: Specimen, carried: Mapping[str, str], kinds: Sequence[str], bound: float) -> float:
        worst = 0.0
        for mode in self.modes if ours.start else self.distinct:
            for numbers in kinds:
                if worst > bound:
                    return worst
                ours.train(mode).restore()
                carry(ours.tensors, (self.large if numbers == "large" else self.theirs).tensors, carried)
                if numbers not in self.answers[mode]:
                    continue
                inputs, want = self.answers[mode][numbers]
                try:
                    with torch.no_grad():
                        got = ours(*inputs)
                except (ValueError, TypeError, RuntimeError, IndexError):
                    return math.inf
                worst = max(worst, _far(got, want, self.shapes[0].axes))
        return worst


def _far(got: Tensor, want: Tensor, axes: tuple[int, ...]) -> float:
    if got.shape != want.shape:
        return math.inf
    most = want.abs().amax(axes, keepdim=True).clamp(min=1e-300)
    apart = float(((got - want).abs() / most).max())
    return apart if math.isfinite(apart) else math.inf
