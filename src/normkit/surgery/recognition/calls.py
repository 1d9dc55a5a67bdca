"""Whether two modules go on alike: over many calls, at other sizes, in either order of memory, and nothing besides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from normkit.surgery.recognition import effects, specimen
from normkit.surgery.recognition.inputs import Shape, batches, draw, larger, smaller
from normkit.surgery.recognition.pair import Compared, Differs, Pair, cancels, difference, draw_inputs, fitting, named
from normkit.surgery.recognition.specimen import Specimen

CALLS = 12
MANY = 10**6  # batches that a norm may have seen
SWITCHED = (1.5, -1e6, 0.0)  # what tensors are multiplied with that should be of no use


class Going(Compared):
    """The comparison of many calls, and of calls at other sizes."""

    def check(self) -> list[str]:
        """Return what was tried, or raise :class:`Differs`."""
        torch.rand(()), random.random(), numpy.random.random()  # so that one that seeds them is seen too
        state = _random_state()
        self._many_calls()
        self._after_many_batches()
        sizes = self._other_sizes()
        self._gradients_elsewhere()
        self._memory()
        self._no_other_tensor()
        if _random_state() != state:
            raise Differs("it draws random numbers")
        return [
            f"equal in state and result over {CALLS} calls in a row, and after {MANY} batches",
            f"equal at {sizes} other sizes and ranks, and with its input in another order of memory",
        ]

    def _both(self, pair: Pair, inputs: Sequence[Tensor], axes: tuple[int, ...], where: str) -> None:
        """Call both, and compare results and running estimates."""
        theirs, ours = pair.theirs(*inputs), pair.ours(*inputs).detach()
        if inputs[0].requires_grad and theirs.requires_grad:  # a module may note that gradients went through it
            torch.autograd.grad(theirs.sum(), inputs[0], allow_unused=True)
        difference(theirs.detach(), ours, torch.zeros_like(ours), axes, 64 * self.unit, where)
        for name, their, our in pair.buffers():
            every = tuple(range(our.ndim))
            difference(their.reshape(our.shape), our, 0 * our, every, 64 * self.unit, f"{name}, {where}")

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
                    self._both(pair, inputs, shape.axes, f"call {call + 1}, {named(shape, mode)}")
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
        for mode in (False, True):
            pair.train(mode)
            few, many = [*smaller(self.shapes), *batches(self.shapes)], larger(self.shapes)
            for shape in [*many, *few]:
                drawn = [draw(shape, seed=i).to(self.exact) for i in range(1 + self.further)]
                ways = [drawn] if shape in few else [drawn, *_other_layouts(drawn), *_one_of_all(drawn, shape)]
                for inputs in ways:
                    try:
                        pair.restore()
                        if not _keeps(pair.theirs(*inputs), shape) or pair.ours(*inputs) is None:
                            continue
                    except Exception:  # a size that one of them does not take
                        continue
                    pair.restore()
                    if inputs[0].numel():
                        self._both(pair, inputs, shape.axes, named(shape, mode))
                    elif (sizes := pair.theirs(*inputs).shape) != shape.sizes:
                        raise Differs(f"it makes shape {tuple(sizes)} of nothing of shape {shape.sizes}")
                    count += 1
        return count

    def _gradients_elsewhere(self) -> None:
        """Gradients of many rows, of an input and sent in other memory, and where the input has none."""
        pair = self.pair(5)
        both = self._learned(pair)
        pair.train(True)
        for shape in [self.shapes[0], *larger(self.shapes)[1:3]]:
            usual: dict[tuple[int, bool], Tensor] = {}  # to measure one by that cancels, as a sum's does
            for inputs, down, learns in self._ways_back(shape):
                try:
                    slopes = [
                        _slopes(pair, side, inputs, down, [p[i] for p in both], learns)
                        for i, side in enumerate((pair.theirs, pair.ours))
                    ]
                except Exception:  # a size that one of them does not take
                    continue
                for at, (their, our) in enumerate(zip(*slopes, strict=True)):
                    if (at or not learns) and not our.any() and cancels(their, down, self.unit):
                        continue
                    axes = shape.axes if at == 0 and learns else tuple(range(our.ndim))
                    where = f"a gradient, {named(shape, True)}"
                    slack = (usual.setdefault((at, learns), our).abs().amax() * self.unit).expand_as(our)
                    difference(their.reshape(our.shape), our, slack, axes, 1024 * self.unit, where)

    def _learned(self, pair: Pair) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Their parameters and ours, of what is one on both sides."""
        both = [(pair.theirs.tensors[their], pair.ours.tensors[our]) for our, their in self.carried.items()]
        return [(t, o) for t, o in both if isinstance(t, nn.Parameter) and isinstance(o, nn.Parameter)]

    def _ways_back(self, shape: Shape) -> list[tuple[list[Tensor], Tensor, bool]]:
        """Inputs, what comes down to a result, and whether the input learns; then both in other memory."""
        drawn = [draw(shape, seed=i).to(self.exact) for i in range(1 + self.further)]
        sent = draw(shape, seed=9).to(self.exact)
        ways = [(drawn, sent, True), (drawn, sent, False), (drawn, sent.new_ones(()).expand(shape.sizes), True)]
        return [*ways, *((other, sent_too, True) for (*other, sent_too) in _other_layouts([*drawn, sent]))]

    @torch.no_grad()
    def _memory(self) -> None:
        """An input is left as it was; one that has other numbers by now, and a gain that has, count as they are now."""
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
                for other in _switched(begun):
                    pair.restore()
                    tensor.data.copy_(other)
                    after = _called(pair, inputs)
                    if after is None or not torch.equal(before, after):
                        raise Differs(f"{name} has no place in it")
                tensor.data.copy_(begun)


def _slopes(
    pair: Pair, side: Specimen, inputs: Sequence[Tensor], sent: Tensor, learned: Sequence[Tensor], learns: bool
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


def _one_of_all(inputs: Sequence[Tensor], shape: Shape) -> list[list[Tensor]]:
    """One sample that stands for all of them in memory, where what is normalized is more than the samples."""
    return [[t[:1].expand(t.shape) for t in inputs]] if len(shape.sizes) > 2 else []


def _called(pair: Pair, inputs: Sequence[Tensor]) -> Tensor | None:
    try:
        return pair.theirs(*inputs)
    except Exception:
        return None


def _switched(tensor: Tensor) -> list[Tensor]:
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


def _random_state() -> tuple[Any, ...]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(numpy.random.get_state())
