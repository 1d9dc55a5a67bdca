"""Whether a module is in lower precision what it is in float64: forward and backward, in both modes, types mixed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit.surgery.recognition.inputs import Shape, larger
from normkit.surgery.recognition.pair import (
    STEPS,
    UNIT,
    Compared,
    Differs,
    Pair,
    difference,
    draw_inputs,
    fitting,
    gradients,
    name_case,
    signs,
    terms,
)
from normkit.surgery.recognition.specimen import Specimen, carry, carry_counts

# the types of its parameters and of its input -> the unit that it may be off by: half precision is coarse already
TYPES = {
    (torch.float32, torch.float32): 8 * UNIT[torch.float32],
    (torch.float32, torch.float64): 8 * UNIT[torch.float32],
    (torch.bfloat16, torch.bfloat16): UNIT[torch.bfloat16] / 2,
    (torch.float16, torch.float16): UNIT[torch.float16] / 2,
    (torch.float32, torch.bfloat16): UNIT[torch.bfloat16] / 2,
    (torch.float32, torch.float16): UNIT[torch.float16] / 2,
}
MOVES = (-1, 1)  # units that the input is rounded by, every second number the other way
SENT = 4  # how large what is sent down is at most
FAR, JUMP = (-8, 8), 8  # where so many units move a number by as many times more than they should, a slope has a step


class Lower(Compared):
    """The comparison with what the explanation is in float64, at the numbers that the lower precision holds."""

    def check(self) -> list[str]:
        """Return what was tried, or raise :class:`Differs`."""
        tried = [self._in(kept, dtype, unit) for (kept, dtype), unit in TYPES.items()]
        text = ", ".join(words for words in tried if words)
        return [f"results and gradients in training and evaluation are those of float64 in {text}"] if text else []

    def _in(self, kept: torch.dtype, dtype: torch.dtype, unit: float) -> str:
        words = str(dtype)[6:] if kept is dtype else f"{str(dtype)[6:]} beside parameters of {str(kept)[6:]}"
        pair, gone = Pair(self.module, self.explained, self.carried, kept, seed=5), False
        for mode in (False, True):
            pair.train(mode)
            try:
                shape = fitting(self.shapes, mode, pair, self.further)[0]
                inputs = draw_inputs(shape, "normal", self.further, dtype)
                pair.restore()
                theirs = _call(pair.theirs, inputs, pair.learned_names.values())
            except Exception:  # it does not go in this type
                continue
            pair.restore()
            self._compare(pair, theirs, inputs, shape, unit, f"in {words}, {name_case(shape, mode)}")
            gone = True
            if not mode:
                lost = draw_inputs(shape, "with infinities", self.further, dtype)
                pair.restore()
                theirs = _call(pair.theirs, lost, [])
                pair.restore()
                self._compare(
                    pair, theirs[:1], lost, shape, unit, f"with infinities in {words}, {name_case(shape, mode)}"
                )
            for many in larger(self.shapes)[1:2]:
                turned = [t.mT.contiguous().mT for t in draw_inputs(many, "normal", self.further, dtype)]
                pair.restore()
                try:
                    theirs = _call(pair.theirs, turned, [])
                except Exception:  # nor this shape
                    continue
                pair.restore()
                with contextlib.suppress(RuntimeError, TypeError, ValueError):
                    self._compare(pair, theirs[:1], turned, many, unit, f"in {words}, {name_case(many, mode)}")
        return words if gone else ""

    @functools.cached_property
    def _exact(self) -> Specimen:
        return Specimen(self.explained, torch.float64, drawn=False)

    def _true(self, pair: Pair, inputs: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor | None]:
        specimen = self._exact.train(pair.ours.module.training)
        if getattr(self.explained, "eps", 0.0) is None:  # it is the type's, and counts where a row is small by chance
            exact: Any = specimen.module
            exact.eps = torch.finfo(dtype if dtype is torch.float64 else torch.float32).eps
        carry(specimen.tensors, pair.theirs.tensors, self.carried)
        carry_counts(specimen.module, pair.theirs.module)
        return _call(specimen, inputs, pair.learned_names)

    def _compare(
        self,
        pair: Pair,
        theirs: Sequence[Tensor | None],
        inputs: Sequence[Tensor],
        shape: Shape,
        unit: float,
        where: str,
    ) -> None:
        x, *others = (t.double() for t in inputs)
        ours = self._true(pair, [x, *others], inputs[0].dtype)

        def moved(moves: Sequence[int], sizes: Tensor = x) -> list[list[Tensor | None]]:
            """The truth where the input is moved by units of its own size, or of another."""
            dtype = inputs[0].dtype
            step = sizes * UNIT[dtype] * signs(x.shape, x.dtype, 0)
            return [self._true(pair, [x + move * step, *others], dtype) for move in moves]

        def slacks(at: int, our: Tensor, rounded: Sequence[Sequence[Tensor | None]]) -> Tensor:
            return torch.stack([(t - our).abs() for outputs in rounded if (t := outputs[at]) is not None]).amax(0)

        near, far = functools.cache(lambda: moved(MOVES)), functools.cache(lambda: moved(FAR))
        usual_size = x.abs().mean() * x.sign()
        beside, beyond = (functools.cache(lambda by=by: moved(by, usual_size)) for by in (MOVES, FAR))
        ways = (near, far), (beside, beyond)
        names = ["the result", *(f"the gradient of {name}" for name in ("the input", *pair.learned_names.values()))]
        for at, (name, their, our) in enumerate(zip(names, theirs, ours, strict=False)):
            if our is None:
                continue
            their = torch.zeros_like(our) if their is None else their.double().reshape(our.shape)
            axes = shape.axes if name in names[:2] else tuple(range(our.ndim))

            def slack(at: int = at, our: Tensor = our) -> Tensor:
                if at != 1:
                    return slacks(at, our, near())
                cancelled = terms(self._exact.module, x, torch.full_like(x, SENT), shape)
                return slacks(at, our, near()) + unit * STEPS * cancelled

            def wider(at: int = at, our: Tensor = our) -> Tensor:
                steps = [(slacks(at, our, large()), slacks(at, our, small())) for small, large in ways]
                jumps = [torch.where(step > JUMP * max(FAR) * usual, step, 0) for step, usual in steps]
                return torch.stack([slack(at, our), *jumps]).amax(0)

            try:
                difference(their, our, axes, unit, f"{name} {where}", slack)
            except Differs:
                difference(their, our, axes, unit, f"{name} {where}", wider)


def _call(side: Specimen, inputs: Sequence[Tensor], names: Iterable[str]) -> list[Tensor | None]:
    """A result, and gradients where numbers come down that every type holds, so that the same is sent in each."""
    return gradients(side, inputs, names, lambda y: _send(y.shape).to(y.dtype))


def _send(sizes: torch.Size) -> Tensor:
    return torch.randint(-SENT, SENT + 1, sizes, generator=torch.Generator().manual_seed(7))
