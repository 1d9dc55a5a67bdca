"""The channel template's two callables, with the arguments of the C library's: which kernels run, one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import kernels
from normkit.kernels.cuda import settings
from normkit.kernels.cuda.launch import Call, fixed, launch, partial, processors, start

GIVEN, DEVIATION, RESPONSE, SHARE, POSITION, ONLINE = range(6)
BLOCK = 256  # channels at a time of what is worked out per channel
MOST = torch.finfo(torch.float32).max


class ChannelPlan(NamedTuple):
    """`ChannelPlan` of `kernels/cpu/normkit.h`."""

    statistic: int
    activation: int
    over_samples: int
    last: int
    x_type: int
    weight_type: int
    bias_type: int
    extra_type: int
    channels: int
    groups: int
    space: int
    eps: float
    decay: float


@lru_cache(maxsize=1024)
def channel_plan(packed: bytes) -> ChannelPlan:
    """What a plan holds."""
    return ChannelPlan(*kernels.CHANNEL.unpack(packed))


def _of_channels(kernel: Any, channels: int, numbers: tuple) -> Call:
    """A kernel of what is worked out per channel."""
    return fixed(kernel, (-(-channels // BLOCK),), numbers, {"BLOCK": BLOCK}, 4)


@dataclass(frozen=True, eq=False)
class Work:
    """How a call is shared out: units, what each is added up from, where the cells of it are, and its kernels."""

    plan: ChannelPlan
    samples: int
    cut: settings.Pieces
    units: int
    group: int  # channels of a unit
    per_sample: int  # units that lie between two steps of `sample_step`
    outer: int  # cells of a unit, but for the pieces
    sample_step: int
    group_step: int
    outer_step: int
    piece_step: int

    @property
    def _kernels(self) -> Any:
        """The template, which brings Triton."""
        from normkit.kernels.cuda.templates import channel

        return channel

    @property
    def cells(self) -> int:
        """How many sums are taken."""
        return self.samples * self.plan.channels * self.cut.pieces

    @property
    def alone(self) -> bool:
        """Whether a unit is a channel of all samples."""
        return self.group == 1 and (bool(self.plan.over_samples) or self.samples == 1)

    @property
    def grid(self) -> tuple[int, int]:
        """Of the kernels that go over entries."""
        p, cut = self.plan, self.cut
        if p.last:
            return self.samples * cut.pieces, -(-p.channels // cut.block)
        return -(-self.samples * p.channels // cut.rows), cut.pieces

    @property
    def kind(self) -> dict[str, int]:
        """What those are compiled for."""
        p, cut = self.plan, self.cut
        about = {"STATISTIC": p.statistic, "ACTIVATION": p.activation, "OVER": p.over_samples}
        return {**about, "LAST": p.last, "ROWS": cut.rows, "BLOCK": cut.block}

    @property
    def sizes(self) -> tuple[int, ...]:
        """What those are told."""
        p, cut = self.plan, self.cut
        return self.samples, p.channels, p.groups, self.group, p.space, cut.steps, cut.pieces, self.units

    @property
    def steps(self) -> tuple[int, int, int, int]:
        """Between the cells of a unit."""
        return self.sample_step, self.group_step, self.outer_step, self.piece_step

    @property
    def steps_of_channels(self) -> tuple[int, int, int]:
        """Between the cells of a channel: from channel to channel, from piece to piece, from sample to sample."""
        channel = self.group_step if self.plan.over_samples else self.outer_step
        return channel, self.piece_step, self.plan.channels * self.cut.pieces

    @cached_property
    def measure(self) -> Call:
        """Means of pieces, and what is left about them."""
        p, cut = self.plan, self.cut
        kind = {"CENTER": self.centered, "SINGLE": p.statistic == SHARE and p.space == 1}
        shape = {"LAST": p.last, "ROWS": cut.rows, "BLOCK": cut.block}
        sizes = self.samples, p.channels, p.space, cut.steps, cut.pieces, self.cells
        return fixed(self._kernels.measure, self.grid, sizes, {**kind, **shape}, cut.warps)

    @property
    def centered(self) -> bool:
        """Whether the mean is taken away."""
        return self.plan.statistic in (DEVIATION, ONLINE)

    @cached_property
    def join(self) -> Call:
        """Moments of units from their pieces."""
        p, cut = self.plan, self.cut
        units, many = settings.sum_sizes(self.units, self.outer * cut.pieces)
        sizes = self.units, self.per_sample, self.outer, cut.pieces, *self.steps, p.space, cut.steps, self.cells
        shape = {"STEP": cut.rows if p.last else cut.block, "UNITS": units, "MEMBERS": many}
        kind = {"CENTER": self.centered, "LENGTH": p.statistic == SHARE}
        return fixed(self._kernels.join, (-(-self.units // units),), sizes, {**kind, **shape}, 4)

    @cached_property
    def level(self) -> Call:
        """SHARE: the mean length of a sample's channels."""
        sizes = self.units, self.plan.channels, self.plan.eps
        return fixed(self._kernels.level, (self.samples,), sizes, {"BLOCK": BLOCK}, 4)

    @cached_property
    def run_on(self) -> Call:
        """ONLINE: the state, sample after sample."""
        p = self.plan
        numbers = self.samples, p.channels, self.units, p.decay, 1 - p.decay, MOST
        return _of_channels(self._kernels.run_on, p.channels, numbers)

    @cached_property
    def write(self) -> Call:
        """The result."""
        return fixed(self._kernels.write, self.grid, (*self.sizes, self.plan.eps), self.kind, self.cut.warps)

    @cached_property
    def reduce(self) -> Call:
        """Sums of pieces for the backward pass."""
        numbers = *self.sizes, self.cells, self.plan.eps
        return fixed(self._kernels.reduce, self.grid, numbers, self.kind, self.cut.warps)

    @cached_property
    def share_pulls(self) -> Call:
        """SHARE: how gradients pull at lengths."""
        numbers = self.plan.channels, self.cut.pieces, *self.steps_of_channels, self.units, self.cells
        return fixed(self._kernels.share_pulls, (self.samples,), numbers, {"BLOCK": BLOCK}, 4)

    @cached_property
    def pulls(self) -> tuple[Call, Call]:
        """How gradients pull at units' moments: without a gradient of the extra parameter, and with it."""
        p = self.plan
        units, many = settings.sum_sizes(self.units, self.outer * self.cut.pieces)
        values = float((self.samples if p.over_samples else self.group) * p.space)
        groups = self.units, self.per_sample, self.group, self.outer, self.cut.pieces
        numbers = *groups, *self.steps, self.cells, values, p.eps
        kind = {"STATISTIC": p.statistic, "ACTIVATION": p.activation, "ALONE": self.alone}
        grid, shape = (-(-self.units // units),), {"UNITS": units, "MEMBERS": many}
        without, extra = (
            fixed(self._kernels.pulls, grid, numbers, {**kind, "EXTRA": extra, **shape}, 4) for extra in (False, True)
        )
        return without, extra

    @cached_property
    def parameters(self) -> Call:
        """The gradients of parameters."""
        p, pieces = self.plan, self.cut.pieces
        units, many = settings.sum_sizes(p.channels, self.samples * pieces)
        numbers = self.samples, p.channels, pieces, *self.steps_of_channels, self.units, self.cells
        kind = {"STATISTIC": p.statistic, "ACTIVATION": p.activation, "UNITS": units, "MEMBERS": many}
        return fixed(self._kernels.parameters, (-(-p.channels // units),), numbers, kind, 4)

    @cached_property
    def control(self) -> Call:
        """ONLINE: the controlled gradient."""
        p = self.plan
        numbers = self.samples, p.channels, self.units, 1 - p.decay, p.eps
        return _of_channels(self._kernels.control, p.channels, numbers)

    @cached_property
    def write_back(self) -> Call:
        """The gradient of x."""
        return fixed(self._kernels.write_back, self.grid, (*self.sizes, self.plan.eps), self.kind, self.cut.warps)


@lru_cache(maxsize=1024)
def work(packed: bytes, samples: int, multiprocessors: int) -> Work:
    """How a call is shared out on a GPU of so many multiprocessors."""
    p = channel_plan(packed)
    cut = settings.channels(samples, p.channels, p.space, bool(p.last), multiprocessors)
    channel, piece = (1, p.channels) if p.last else (cut.pieces, 1)
    sample, group = p.channels * cut.pieces, p.channels // p.groups
    if p.over_samples:
        return Work(p, samples, cut, p.groups, group, p.groups, samples, 0, channel, sample, piece)
    return Work(p, samples, cut, samples * p.groups, group, p.groups, group, sample, group * channel, channel, piece)


@dataclass(frozen=True, eq=False)
class Whole:
    """A call whose units are held whole, one a program."""

    plan: ChannelPlan
    samples: int
    setting: settings.Setting

    @property
    def units(self) -> int:
        """How many there are."""
        return self.samples * self.plan.groups

    @property
    def cells(self) -> int:
        """How many sums are taken."""
        return self.samples * self.plan.channels

    def _call(self, kernel: Any, *counts: int) -> Call:
        p, s = self.plan, self.setting
        numbers = p.groups, p.channels // p.groups, p.space, *counts, p.eps
        kind = {"STATISTIC": p.statistic, "ACTIVATION": p.activation, "MEMBERS": s.rows, "BLOCK": s.block}
        return fixed(kernel, (self.units,), numbers, kind, s.warps)

    @cached_property
    def forward(self) -> Call:
        """The result and its moments."""
        from normkit.kernels.cuda.templates import unit

        return self._call(unit.forward, self.units)

    @cached_property
    def backward(self) -> Call:
        """The gradient of x and sums for those of parameters."""
        from normkit.kernels.cuda.templates import unit

        return self._call(unit.backward, self.units, self.cells)

    @cached_property
    def parameters(self) -> Call:
        """The gradients of parameters."""
        from normkit.kernels.cuda.templates import channel

        p = self.plan
        rows, many = settings.sum_sizes(p.channels, self.samples)
        numbers = self.samples, p.channels, 1, 1, 1, p.channels, self.units, self.cells
        kind = {"STATISTIC": p.statistic, "ACTIVATION": p.activation, "UNITS": rows, "MEMBERS": many}
        return fixed(channel.parameters, (-(-p.channels // rows),), numbers, kind, 4)


@lru_cache(maxsize=1024)
def whole(packed: bytes, samples: int) -> Whole | None:
    """How programs take units whole; None where one is not a group of one sample, or too large, or channels last."""
    p = channel_plan(packed)
    if p.last or p.over_samples or p.statistic not in (DEVIATION, RESPONSE):
        return None
    setting = settings.unit(p.channels // p.groups, p.space)
    return None if setting is None else Whole(p, samples, setting)


@lru_cache
def add_up_call() -> Call:
    """The kernel that adds up the programs' sums."""
    from normkit.kernels.cuda.templates import sums

    s = settings.SUMS
    return fixed(sums.add_up_programs, (), (), {"ROWS": s.rows, "BLOCK": s.block}, s.warps)


class Channels:
    """The kernels of channels, on a GPU or interpreted on CPU tensors."""

    interpreted: bool

    def channel_forward(
        self,
        plan: bytes,
        samples: int,
        x,
        weight,
        bias,
        extra,
        moments,
        state,
        y,
        *,
        eps=None,
        join: Callable[..., None] | None = None,
        step: Any = None,
    ) -> None:
        """As the C library's. eps: a learned one. join: adds other processes' moments. step: that of running ones."""
        p, arrays = channel_plan(plan), (x, weight, bias, extra, moments, eps, y)
        if p.statistic == POSITION:
            self._position_forward(p, samples, x, weight, bias, y)
            return
        held = None if join is not None else whole(plan, samples)
        if held is not None:
            self._start(held.forward, *arrays)
            return
        w = work(plan, samples, processors(x))
        if p.statistic != GIVEN:
            self._measure(w, x, moments, step)
        if join is not None:
            join()
        if p.statistic == ONLINE:
            self._start(w.run_on, moments, state)
        self._start(w.write, *arrays)

    def _measure(self, w: Work, x: Tensor, moments: Tensor, step: Any) -> None:
        partials = torch.empty(2 * w.cells, dtype=torch.float64, device=x.device)
        self._start(w.measure, x, partials)
        running, numbers = ((None, None), (None, None)) if step is None else (step[:2], step[2:])
        start(w.join, w.join.grid, (partials, moments, *running), numbers, self.interpreted)
        if w.plan.statistic == SHARE:
            self._start(w.level, moments)

    def channel_backward(
        self, plan: bytes, samples: int, x, grad, weight, bias, extra, moments, state, dx, dweight, dbias, dextra, deps,
        *, eps=None, join: Callable[..., None] | None = None,
    ) -> None:  # fmt: skip
        """As the C library's. eps: a learned one. join: adds other processes' pulls to its argument."""
        p = channel_plan(plan)
        if p.statistic == POSITION:
            self._position_backward(p, samples, x, grad, weight, dx, dweight, dbias)
            return
        arrays, made = (x, grad, weight, bias, extra, moments, eps), (dweight, dbias, dextra)
        held = None if join is not None else whole(plan, samples)
        if held is not None:
            self._whole_backward(held, arrays, dx, made, deps)
            return
        w = work(plan, samples, processors(x))
        pulled = None if p.statistic == GIVEN else torch.empty(2 * w.units, dtype=torch.float64, device=x.device)
        if pulled is not None or any(gradient is not None for gradient in made):
            sums = torch.empty((2 if extra is None else 3) * w.cells, dtype=torch.float32, device=x.device)
            self._start(w.reduce, *arrays, sums)
            self._pull(w, sums, weight, moments, eps, pulled, made, deps)
        if join is not None and pulled is not None:
            join(pulled)
        if p.statistic == ONLINE:
            self._start(w.control, pulled, moments, state)
        if dx is not None:
            self._start(w.write_back, *arrays, pulled, dx)

    def _whole_backward(self, held: Whole, arrays: tuple, dx, made: tuple, deps) -> None:
        x, _, weight, _, extra, moments, _ = arrays
        requires_grad = any(gradient is not None for gradient in made)
        sums = x.new_empty((2 if extra is None else 3) * held.cells, dtype=torch.float32) if requires_grad else None
        parts = None if deps is None else x.new_empty(held.units, dtype=torch.float64)
        self._start(held.backward, *arrays, dx, sums, parts)
        if deps is not None:
            deps.copy_(parts.sum() * -0.5)  # type: ignore[union-attr]
        if requires_grad:
            self._start(held.parameters, sums, weight, moments, *made)

    def _pull(self, w: Work, sums, weight, moments, eps, pulled, made, deps) -> None:
        p = w.plan
        if p.statistic == SHARE:
            self._start(w.share_pulls, sums, weight, moments, pulled)
        elif p.statistic != GIVEN:
            parts = None if deps is None else torch.empty(w.units, dtype=torch.float64, device=sums.device)
            own = made if w.alone else (None, None, None)
            self._start(w.pulls[own[2] is not None], sums, weight, moments, eps, pulled, parts, *own)
            if deps is not None:
                deps.copy_(parts.sum() * -0.5)  # type: ignore[union-attr]
        if any(gradient is not None for gradient in made) and (not w.alone or p.statistic in (GIVEN, SHARE)):
            self._start(w.parameters, sums, weight, moments, *made)

    def _position_forward(self, p: ChannelPlan, samples: int, x, weight, bias, y) -> None:
        from normkit.kernels.cuda.templates import position

        s = settings.positions(p.channels, p.space)
        blocks = -(-p.space // s.block)
        args = x, weight, bias, y, p.channels, p.space, blocks, p.eps
        self._launch(position.forward, samples * blocks, args, {"ROWS": s.rows, "BLOCK": s.block}, s.warps)

    def _position_backward(self, p: ChannelPlan, samples: int, x, grad, weight, dx, dweight, dbias) -> None:
        from normkit.kernels.cuda.templates import position

        s = settings.positions(p.channels, p.space)
        blocks = -(-p.space // s.block)
        dgains, dbiases = (partial(x, samples * blocks, p.channels, gradient) for gradient in (dweight, dbias))
        args = x, grad, weight, dx, dgains, dbiases, p.channels, p.space, blocks, p.eps
        self._launch(position.backward, samples * blocks, args, {"ROWS": s.rows, "BLOCK": s.block}, s.warps)
        self._add_up(dgains, dweight, dbiases, dbias)

    def _add_up(self, gains, dweight, biases, dbias, alphas=None, dalpha=None, shifts=None, dshift=None) -> None:
        """The programs' shares in the gradients of parameters, in their order; `dweight` of one entry takes all."""
        if gains is not None and alphas is None and dweight.numel() == 1:
            gains, dweight, alphas, dalpha = None, None, gains, dweight
        first = biases if gains is None else gains
        alone = alphas if shifts is None else shifts
        if first is None and alone is None:
            return
        programs, dim = (1, 1) if first is None else first.shape
        tensors = gains, biases, alphas, shifts, dweight, dbias, dalpha, dshift
        sizes = programs, dim, 0 if alone is None else alone.numel()
        start(add_up_call(), (-(-dim // settings.SUMS.block),), tensors, sizes, self.interpreted)

    def _start(self, call: Call, *tensors: Tensor | None) -> None:
        start(call, call.grid, tensors, (), self.interpreted)

    def _launch(self, kernel, grid: int | tuple[int, ...], arguments: tuple, constants: dict, warps: int) -> None:
        grid = (grid,) if isinstance(grid, int) else grid
        launch(kernel, grid, arguments, constants, warps, self.interpreted)
