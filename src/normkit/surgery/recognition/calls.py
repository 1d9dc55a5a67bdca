"""Whether two modules go on alike: over many calls, at other sizes, in either order of memory, and nothing besides."""

from __future__ import annotations

import functools
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from normkit.surgery.recognition import effects, specimen
from normkit.surgery.recognition.inputs import ODD, Shape, at_most, batches, draw, larger, smaller
from normkit.surgery.recognition.pair import (
    STEPS,
    Compared,
    Differs,
    Pair,
    cancels,
    difference,
    draw_inputs,
    fitting,
    name_case,
    terms,
)
from normkit.surgery.recognition.specimen import Specimen

Estimate = tuple[str, Tensor, Tensor]  # the name of a running estimate, and theirs and ours
Way = tuple[Sequence[Tensor], Tensor, bool]  # inputs, what is sent down, and whether the input has a gradient
CALLS = 12
SPACE = 3  # of an image with any number of samples
MANY = 10**6  # batches that a norm may have seen
TRIES, WAIT = 100, 1e-2  # calls, and seconds without one
ANOTHER = "another thread"
SWITCHED = (1.5, -1e6, 0.0)  # what tensors are multiplied with that should be of no use


class Going(Compared):
    """The comparison of many calls, and of calls at other sizes."""

    def check(self) -> list[str]:
        """Return what was tried, or raise :class:`Differs`."""
        state, alone = _moved_state(), threading.active_count() == 1
        self._many_calls()
        self._after_many_batches()
        sizes = self._other_sizes()
        self._gradients_elsewhere()
        self._memory()
        self._no_other_tensor()
        drawn = self._drawn(alone and threading.active_count() == 1) if _random_state() != state else []
        return [
            f"equal in state and result over {CALLS} calls in a row, and after {MANY} batches",
            f"equal at {sizes} other sizes and ranks, and with its input in another order of memory",
            *drawn,
        ]

    def _drawn(self, alone: bool) -> list[str]:
        """What speaks for another thread as the one that drew random numbers; raise :class:`Differs` if nothing does.

        All threads share one state. Another one must be seen to move it, and the module at no shape at each call.
        """
        if alone:
            raise Differs("it draws random numbers")
        elsewhere = any(_moves(lambda: time.sleep(WAIT)) for _ in range(TRIES))
        if not elsewhere or any(self._moves(mode) for mode in (True, False)):
            raise Differs(f"it draws random numbers, or {ANOTHER} does")
        calls = f"of {TRIES} calls of each shape and mode one at least drew none"
        return [f"{ANOTHER} drew random numbers meanwhile, and while no call ran; {calls}"]

    def _moves(self, mode: bool) -> bool:
        """Whether at one of the shapes each of several calls, with its backward pass, moves the random state."""
        pair = self.pair(3)
        pair.train(mode)
        return any(self._moves_at(shape, pair) for shape in fitting(self.shapes, mode, pair, self.further))

    def _moves_at(self, shape: Shape, pair: Pair) -> bool:
        inputs = draw_inputs(shape, "normal", self.further, self.exact)
        inputs[0].requires_grad_()

        def call() -> None:
            y = pair.theirs(*inputs)
            if y.requires_grad:
                torch.autograd.grad(y.sum(), inputs[0], allow_unused=True)

        return all(_moves(call) for _ in range(TRIES))

    def _both(self, pair: Pair, inputs: Sequence[Tensor], axes: tuple[int, ...], where: str) -> None:
        """Call both, and compare results and running estimates."""
        theirs, ours = pair.theirs(*inputs), pair.ours(*inputs).detach()
        if inputs[0].requires_grad and theirs.requires_grad:  # a module may note that gradients went through it
            torch.autograd.grad(theirs.sum(), inputs[0], allow_unused=True)
        self._alike(theirs.detach(), ours, pair.buffers(), axes, where)

    def _alike(
        self, theirs: Tensor, ours: Tensor, estimates: Iterable[Estimate], axes: tuple[int, ...], where: str
    ) -> None:
        """Compare results and running estimates."""
        difference(theirs, ours, axes, 64 * self.unit, where)
        for name, their, our in estimates:
            every = tuple(range(our.ndim))
            difference(their.reshape(our.shape), our, every, 64 * self.unit, f"{name}, {where}")

    def _many_calls(self) -> None:
        """Twelve calls in either mode, with what is kept between them, and the same result for the same input twice."""
        pair = self.pair(3)
        for mode in (True, False):
            pair.train(mode)
            shape = fitting(self.shapes, mode, pair, self.further)[0]
            pair.restore()
            before = effects.with_classes(pair.theirs.module)
            for call in range(CALLS):
                inputs = [t * (1 + call) for t in draw_inputs(shape, "normal", self.further, self.exact)]
                inputs[0].requires_grad_(call % 4 == 0)
                with torch.no_grad() if call % 2 else torch.enable_grad():
                    self._both(pair, inputs, shape.axes, f"call {call + 1}, {name_case(shape, mode)}")
            changed = [
                key for key, value in effects.with_classes(pair.theirs.module).items() if before.get(key) != value
            ]
            changed += sorted(_counts(pair.theirs.module) - _counts(pair.ours.module))
            changed += pair.moved()
            ours = _integers(pair.ours.module)
            changed += [n for n, b in _integers(pair.theirs.module).items() if b.any() and (b != ours.get(n, b)).any()]
            if changed:
                raise Differs(f"{changed[0].lstrip('.')} changes from call to call")
        if new := specimen.tensors(pair.theirs.module).keys() - specimen.tensors(self.module).keys():
            raise Differs(f"{min(new)} is made by a call")
        pair.train(False)
        pair.restore()
        inputs = draw_inputs(shape, "normal", self.further, self.exact)
        if not torch.equal(pair.theirs(*inputs).nan_to_num(), pair.theirs(*inputs).nan_to_num()):
            raise Differs("two calls with one input give two results")

    def _after_many_batches(self) -> None:
        """What both count is set high."""
        pair = self.pair(3)
        ours = _integers(pair.ours.module)
        shared = [(their, ours[name]) for name, their in _integers(pair.theirs.module).items() if name in ours]
        if not shared:
            return
        for mode in (True, False):
            pair.train(mode)
            shape = fitting(self.shapes, mode, pair, self.further)[0]
            pair.restore()
            for their, our in shared:
                their.fill_(MANY), our.fill_(MANY)
            self._both(
                pair,
                draw_inputs(shape, "normal", self.further, self.exact),
                shape.axes,
                f"after {MANY} batches, {mode}",
            )

    @torch.no_grad()
    def _other_sizes(self) -> int:
        """Longer, wider and more; one row alone; each small number; and memory that is not in order, or used twice."""
        pair, count = self.pair(5), 0
        many = larger(self.shapes)
        turned = [many[2], *(at_most(shape, ODD) for shape in many)]  # one of many numbers
        for shape in dict.fromkeys([*many, *turned, *smaller(self.shapes), *batches(self._small(pair))]):
            drawn = [draw(shape, seed=i).to(self.exact) for i in range(1 + self.further)]
            ways = [[drawn, *_other_layouts(drawn)], *_one_of_all(drawn, shape)] if shape in turned else [[drawn]]
            for mode in (False, True):
                pair.train(mode)
                if not self._grows(pair, shape):
                    count += sum(self._elsewhere(pair, layouts, shape, name_case(shape, mode)) for layouts in ways)
        return count

    def _small(self, pair: Pair) -> Shape:
        """The first shape, or the same with less space if both take that."""
        small = at_most(self.shapes[0], SPACE)
        inputs = draw_inputs(small, "normal", self.further, self.exact)
        for side, mode in itertools.product((pair.theirs, pair.ours), (False, True)):
            pair.restore()
            y = _call(side.train(mode), inputs)
            if y is None or y.shape != small.sizes:
                return self.shapes[0]
        return small

    def _grows(self, pair: Pair, shape: Shape) -> bool:
        """Whether two rows of a rank that a module was not tried on become more numbers, as by a gain of further axes.

        It is not made for that rank, and many rows of it can take gigabytes.
        """
        if len(shape.sizes) in {len(one.sizes) for one in self.shapes}:
            return False
        inputs = draw_inputs(at_most(shape, 2), "normal", self.further, self.exact)
        pair.restore()
        y = _call(pair.theirs, inputs)
        return y is not None and y.numel() > inputs[0].numel()

    def _elsewhere(self, pair: Pair, layouts: Sequence[Sequence[Tensor]], shape: Shape, where: str) -> int:
        """Compare calls with the same numbers in several layouts, if both take the size; return how many there were."""
        count = 0
        ours = functools.cache(lambda: (pair.ours(*layouts[0]), [our.clone() for _, _, our in pair.buffers()]))
        for inputs in layouts:
            pair.restore()
            try:
                theirs = pair.theirs(*inputs)
                if not _keeps(theirs, shape):
                    continue
                want, estimates = ours()
            except Exception:  # a size that one of them does not take
                continue
            count += 1
            if not inputs[0].numel() and theirs.shape != shape.sizes:
                raise Differs(f"it makes shape {tuple(theirs.shape)} of nothing of shape {shape.sizes}")
            if inputs[0].numel():
                both = [(name, t, our) for (name, t, _), our in zip(pair.buffers(), estimates, strict=True)]
                self._alike(theirs, want, both, shape.axes, where)
        return count

    def _gradients_elsewhere(self) -> None:
        """Gradients of many rows, of an input and sent in other memory, and where the input has none."""
        pair = self.pair(5)
        pair.train(True)
        shapes = [self.shapes[0], *larger(self.shapes)[1:3]]
        turned = [shapes[-1], *(at_most(shape, ODD) for shape in shapes)]
        for shape in dict.fromkeys([*shapes, *turned]):
            drawn = [draw(shape, seed=i).to(self.exact) for i in range(1 + self.further)]
            sent = draw(shape, seed=9).to(self.exact)
            layouts = [(drawn, sent, True)]
            if shape in turned:
                layouts += [(inputs, down, True) for (*inputs, down) in _other_layouts([*drawn, sent])]
            sizes: dict[tuple[int, bool], Tensor] = {}
            for ways in (layouts, [(drawn, sent, False)], [(drawn, sent.new_ones(()).expand(shape.sizes), True)]):
                self._slopes_alike(pair, ways, shape, sizes)

    def _slopes_alike(
        self, pair: Pair, layouts: Sequence[Way], shape: Shape, sizes: dict[tuple[int, bool], Tensor]
    ) -> None:
        """Compare the gradients of calls with the same numbers in several layouts.

        sizes: usual gradients, to measure one by that cancels, as a sum's does.
        """
        learned = pair.learned()
        ours = functools.cache(lambda: _slopes(pair, pair.ours, [our for _, our in learned], *layouts[0]))
        for inputs, sent, learns in layouts:
            try:
                theirs = _slopes(pair, pair.theirs, [their for their, _ in learned], inputs, sent, learns)
                slopes = list(zip(theirs, ours(), strict=True))
            except Exception:  # a size that one of them does not take
                continue
            for at, (their, our) in enumerate(slopes):
                if (at or not learns) and not our.any() and cancels(their, sent, self.unit):
                    continue
                axes = shape.axes if at == 0 and learns else tuple(range(our.ndim))
                room = sizes.setdefault((at, learns), our).abs().amax().expand_as(our) * self.unit
                if at == 0 and learns:
                    room = room + STEPS * self.unit * terms(pair.ours.module, inputs[0], sent, shape)
                where = f"a gradient, {name_case(shape, True)}"
                difference(their.reshape(our.shape), our, axes, 1024 * self.unit, where, room.clone)

    @torch.no_grad()
    def _memory(self) -> None:
        """An input is left as it was; one that has other numbers since, and a gain that has, count as they are now."""
        pair = self.pair(6)
        pair.train(False)
        shape = fitting(self.shapes, False, pair, self.further)[0]
        pair.restore()
        inputs = draw_inputs(shape, "normal", self.further, self.exact)
        before = [t.clone() for t in inputs]
        pair.theirs(*inputs)
        if not all(map(torch.equal, inputs, before)):
            raise Differs("it writes into its input")
        for t in inputs:
            t.mul_(-3)
        self._both(pair, inputs, shape.axes, "the same input with other numbers")
        learned = dict(pair.ours.module.named_parameters())
        for ours, theirs in self.carried.items():
            if ours in learned:
                pair.ours.tensors[ours].mul_(-2), pair.theirs.tensors[theirs].mul_(-2)
        self._both(pair, inputs, shape.axes, "the same input with other parameters")

    @torch.no_grad()
    def _no_other_tensor(self) -> None:
        """A tensor that the explanation has no place for must be of no use."""
        pair = self.pair(4)
        spare: list[tuple[str, Tensor]] = [
            (name, t) for name, t in pair.theirs.tensors.items() if name not in self.carried.values()
        ]
        ours = _integers(pair.ours.module)
        spare += [(name, t) for name, t in _integers(pair.theirs.module).items() if name not in ours]
        for mode in (False, True):
            pair.train(mode)
            shape = fitting(self.shapes, mode, pair, self.further)[0]
            inputs = draw_inputs(shape, "normal", self.further, self.exact)
            for name, tensor in spare:
                pair.restore()
                begun, before = tensor.clone(), pair.theirs(*inputs)
                for other in _switch(begun):
                    pair.restore()
                    tensor.data.copy_(other)
                    after = _call(pair.theirs, inputs)
                    if after is None or not torch.equal(before, after):
                        raise Differs(f"{name} has no place in it")
                tensor.data.copy_(begun)


def _slopes(
    pair: Pair, side: Specimen, learned: Sequence[Tensor], inputs: Sequence[Tensor], sent: Tensor, learns: bool
) -> list[Tensor]:
    """The gradients of the input, if it has one, and of parameters; zeros where there are none."""
    pair.restore()
    x = inputs[0].detach().requires_grad_(learns)
    leaves = [*([x] if learns else []), *learned]
    y = side(x, *inputs[1:])
    grads = (
        torch.autograd.grad(y, leaves, sent, allow_unused=True) if leaves and y.requires_grad else [None] * len(leaves)
    )
    return [torch.zeros_like(t) if slope is None else slope for slope, t in zip(grads, leaves, strict=True)]


def _other_layouts(inputs: Sequence[Tensor]) -> list[list[Tensor]]:
    """The same numbers in other memory: the last two axes turned, channels last, behind others, or between such."""
    turned = [t.mT.contiguous().mT if t.ndim > 1 else t for t in inputs]
    channels_last = [t.movedim(1, -1).contiguous().movedim(-1, 1) if t.ndim > 2 else t for t in inputs]
    behind = [torch.stack((t + 1, t))[1] for t in inputs]
    between = [torch.cat((t, t + 1), -1)[..., : t.shape[-1]] if t.ndim else t for t in inputs]
    return [turned, channels_last, behind, between]


def _keeps(y: Tensor, shape: Shape) -> bool:
    """Whether a size is one that a module is for: a batch keeps its shape, and what has none may get one."""
    return y.shape == shape.sizes or y.ndim == len(shape.sizes)


def _one_of_all(inputs: Sequence[Tensor], shape: Shape) -> list[list[list[Tensor]]]:
    """One sample that stands for all of them in memory, where what is normalized is more than the samples."""
    return [[[t[:1].expand(t.shape) for t in inputs]]] if len(shape.sizes) > 2 else []


def _call(side: Specimen, inputs: Sequence[Tensor]) -> Tensor | None:
    try:
        return side(*inputs)
    except Exception:
        return None


def _switch(tensor: Tensor) -> list[Tensor]:
    """Other numbers for a tensor: of real ones larger, smaller and none, of whole ones and words the opposite."""
    if tensor.is_floating_point():
        return [tensor * factor for factor in SWITCHED]
    if tensor.dtype is torch.bool:
        return [~tensor]
    return [(tensor == 0).to(tensor.dtype), torch.full_like(tensor, 100)]


def _integers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of whole numbers and of truths, by the last part of their names."""
    return {name.rpartition(".")[2]: b for name, b in module.named_buffers() if not b.is_floating_point()}


def _counts(module: nn.Module) -> set[str]:
    """The integers that a module keeps and that are not 0."""
    return {name for name, b in _integers(module).items() if b.any()}


def _moves(call: Callable[[], None]) -> bool:
    """Whether the state of random numbers is another after a call."""
    state = _moved_state()
    call()
    return _random_state() != state


def _moved_state() -> tuple[Any, ...]:
    """The state of random numbers after some that are drawn here: who seeds them anew moves it."""
    torch.rand(()), random.random(), numpy.random.random()
    return _random_state()


def _random_state() -> tuple[Any, ...]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(numpy.random.get_state())
