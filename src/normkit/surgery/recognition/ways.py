"""Whether two modules are alike however they are called: frozen, in inference, under autocast, differentiated twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from normkit.surgery.recognition.halves import HALF_STEPS, HALVES
from normkit.surgery.recognition.inputs import Shape
from normkit.surgery.recognition.pair import (
    UNIT,
    Compared,
    Differs,
    Pair,
    difference,
    draw_inputs,
    fitting,
    name_case,
    terms,
)
from normkit.surgery.recognition.specimen import Specimen

ASKED = {torch.compiler: "is_compiling", torch.jit: "is_tracing", torch: "are_deterministic_algorithms_enabled"}
SENT = (1e8, 1e-8)  # how large gradients may come
FROZEN = "the result", "the gradient of the input", "the result without gradients"
MOST_SENT = 4.0  # few normal numbers are larger
ROOM = 64  # how much more than results gradients may be off
UNREGISTERED = ("CppFunction",)  # the class of nodes that are written in C++, but not by torch


class Ways(Compared):
    """The comparison of calls of every kind."""

    def check(self) -> list[str]:
        """Return what was tried, or raise :class:`Differs`."""
        twice = False
        for mode in (False, True):
            pair = self.pair(9)
            pair.train(mode)
            shape = fitting(self.shapes, mode, pair, self.further)[0]
            inputs = draw_inputs(shape, "normal", self.further, self.exact)
            where = name_case(shape, mode)
            self._sent(pair, inputs, shape, where)
            twice = self._twice(pair, inputs, shape, where) or twice
            self._inference(pair, inputs, shape, where)
            self._inside(pair, inputs, shape, where)
            self._frozen(pair, inputs, shape, where)
            self._autocast(mode)
        return [
            f"equal with frozen parameters, in inference mode, under autocast, for gradients of {SENT[1]:g} to "
            f"{SENT[0]:g} times the size" + (", and in second gradients" if twice else "")
        ]

    def _alike(
        self, theirs: Tensor, ours: Tensor, axes: tuple[int, ...] | None, where: str, cancelled: Tensor | None = None
    ) -> None:
        """Compare what both give; of gradients that are sums with the size of the terms that have cancelled."""
        every = tuple(range(ours.ndim)) if axes is None else axes
        slack = None if cancelled is None else (ROOM * self.unit * cancelled).clone
        difference(theirs.reshape(ours.shape), ours, every, ROOM * self.unit, where, slack)

    def _sent(self, pair: Pair, inputs: Sequence[Tensor], shape: Shape, where: str) -> None:
        """Gradients are linear in what is sent, which is left as it was, and hide nothing that is no number."""
        g = torch.Generator().manual_seed(11)
        drawn = torch.randn(inputs[0].shape, generator=g, dtype=torch.float64).to(self.exact)
        holes = torch.where(torch.rand(drawn.shape, generator=g) < 2 / drawn.numel(), torch.nan, drawn)
        holes.view(-1)[drawn.numel() // 2] = torch.nan
        names = ["the gradient of the input", *["the gradient of a parameter"] * len(pair.learned())]
        for size in (*SENT, None):
            sent = holes if size is None else drawn * size
            both = [self._slopes(pair, side, inputs, sent, where) for side in (pair.theirs, pair.ours)]
            cancelled = [terms(pair.ours.module, inputs[0], drawn, shape), *[None] * len(pair.learned())]
            every = [shape.axes, *[None] * len(names[1:])]
            for what, axes, few, their, our in zip(names, every, cancelled, *both, strict=True):
                if their is None or our is None:
                    continue
                if size is not None:
                    self._alike(their / size, our / size, axes, f"{what}, sent {size:g} times as much, {where}", few)
                elif (our.isnan() & ~their.reshape(our.shape).isnan()).any():
                    raise Differs(f"{what} hides what is no number, {where}")

    def _slopes(
        self, pair: Pair, side: Specimen, inputs: Sequence[Tensor], sent: Tensor, where: str
    ) -> Sequence[Tensor | None]:
        """The gradients of the input and of the parameters on one side, which must leave what it is sent as it was."""
        pair.restore()
        x = inputs[0].clone().requires_grad_()
        y, before = side(x, *inputs[1:]), sent.clone()
        leaves = [x, *(both[side is pair.ours] for both in pair.learned())]
        if not y.requires_grad:
            return [None for _ in leaves]
        slopes = torch.autograd.grad(y, leaves, sent, allow_unused=True)
        if not torch.equal(sent.nan_to_num(), before.nan_to_num()):
            raise Differs(f"its backward writes into the gradient that it is sent, {where}")
        return slopes

    def _twice(self, pair: Pair, inputs: Sequence[Tensor], shape: Shape, where: str) -> bool:
        """Compare gradients of gradients; whether there are any.

        Kernels often give none, and backward passes written by hand wrong ones: what they keep of the forward pass
        counts as constant there. A backward pass of the user's own is not asked for them.
        """
        pair.restore()
        x = inputs[0].clone().requires_grad_()
        y = pair.theirs(x, *inputs[1:])
        if _by_hand(y):
            return False
        try:
            theirs = _second(y, x)
        except RuntimeError:
            return False
        if theirs is None:
            return False
        pair.restore()
        ours = _second(pair.ours(x, *inputs[1:]), x) or [torch.zeros_like(x)] * 2
        once = terms(pair.ours.module, x, torch.full_like(x, MOST_SENT), shape)
        twice = once * (1 + once / MOST_SENT) * MOST_SENT
        for their, our, what in zip(theirs, ours, ("the input", "what is sent"), strict=True):
            self._alike(their, our, shape.axes, f"the second gradient of {what}, {where}", twice)
        return True

    def _inference(self, pair: Pair, inputs: Sequence[Tensor], shape: Shape, where: str) -> None:
        """In inference mode, with tensors of before and with such as were made in it."""
        with torch.inference_mode():
            for tensors in (inputs, [t.clone() for t in inputs]):
                pair.restore()
                self._alike(pair.theirs(*tensors), pair.ours(*tensors), shape.axes, f"in inference mode, {where}")

    def _inside(self, pair: Pair, inputs: Sequence[Tensor], shape: Shape, where: str) -> None:
        """Between layers, where the input is a result that gradients go through; and while it is being compiled."""
        x = inputs[0].clone().requires_grad_() * 1.0
        pair.restore()
        self._alike(pair.theirs(x, *inputs[1:]), pair.ours(x, *inputs[1:]), shape.axes, f"between layers, {where}")
        pair.restore()
        ours = pair.ours(*inputs)
        for about, question in ASKED.items():
            pair.restore()
            with mock.patch.object(about, question, return_value=True):
                try:
                    theirs = pair.theirs(*inputs)
                except Exception:  # it goes other ways then, which end here
                    continue
            self._alike(theirs, ours, shape.axes, f"where {question} is true, {where}")

    def _frozen(self, pair: Pair, inputs: Sequence[Tensor], shape: Shape, where: str) -> None:
        """All parameters frozen, then each alone."""
        learned = pair.learned()
        g = torch.Generator().manual_seed(13)
        sent = torch.randn(inputs[0].shape, generator=g, dtype=torch.float64).to(self.exact)
        for some in [learned, *([one] for one in learned if len(learned) > 1)]:
            for parameter in (p for both in some for p in both):
                parameter.requires_grad_(False)
            sides = []
            for side in (pair.theirs, pair.ours):
                pair.restore()
                x = inputs[0].clone().requires_grad_()
                y = side(x, *inputs[1:])
                slope = torch.autograd.grad(y, x, sent.to(y.dtype))[0] if y.requires_grad else torch.zeros_like(x)
                pair.restore()
                sides.append((y.detach(), slope, side(*inputs).detach()))
            for parameter in (p for both in some for p in both):
                parameter.requires_grad_(True)
            few = terms(pair.ours.module, inputs[0], sent, shape)
            for their, our, what, cancelled in zip(*sides, FROZEN, (None, few, None), strict=True):
                self._alike(their, our, shape.axes, f"{what} with frozen parameters, {where}", cancelled)

    def _autocast(self, mode: bool) -> None:
        """Under autocast to either half precision, to what rounding at every step may cost."""
        pair = Pair(self.module, self.explained, self.carried, torch.float32, seed=9)
        pair.train(mode)
        for dtype in HALVES:
            try:
                shape = fitting(self.shapes, mode, pair, self.further)[0]
                inputs = draw_inputs(shape, "normal", self.further, torch.float32)
                outputs = [_cast(pair, side, inputs, dtype) for side in (pair.theirs, pair.ours)]
            except (Differs, RuntimeError):  # it does not go under autocast
                continue
            most = outputs[1].abs().amax(shape.axes, keepdim=True)
            if not ((outputs[0] - outputs[1]).abs() <= HALF_STEPS[0] * UNIT[dtype] * most).all():
                raise Differs("under autocast it is something else")


@torch.no_grad()
def _cast(pair: Pair, side: Specimen, inputs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    pair.restore()
    with torch.autocast("cpu", dtype):
        return side(*inputs).double()


def _second(y: Tensor, x: Tensor) -> list[Tensor] | None:
    """The gradients of a gradient of the input, by the input and by what was sent; None if there are none."""
    g = torch.Generator().manual_seed(12)
    sent, along = (torch.randn(y.shape, generator=g).to(y.dtype) for _ in range(2))
    sent.requires_grad_()
    (slope,) = torch.autograd.grad(y, x, sent, create_graph=True)
    if not slope.requires_grad:
        return None
    grads = torch.autograd.grad(slope, [x, sent], along, allow_unused=True)
    none = all(t is None for t in grads)
    return None if none else [torch.zeros_like(x) if t is None else t for t in grads]


def _by_hand(y: Tensor) -> bool:
    """Whether the user's own backward pass is among those of a result."""
    seen: set[Any] = set()
    todo = [y.grad_fn]
    while todo:
        node = todo.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction) or type(node).__name__ in UNREGISTERED:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            todo += [further for further, _ in node.next_functions]
    return False
