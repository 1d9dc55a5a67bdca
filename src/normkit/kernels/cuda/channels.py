"""The channel template's two callables, with the arguments of the C library's: which kernels run, one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import kernels
from normkit.kernels.cuda import settings
from normkit.kernels.cuda.launch import add_all, launch, partial, processors

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


class Work(NamedTuple):
    """How a call is shared out: units, what each is added up from, and where the cells of it are."""

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


@lru_cache(maxsize=1024)
def whole(packed: bytes) -> settings.Setting | None:
    """How a program takes a unit whole; None where it is not a group of one sample, or too large, or channels last."""
    p = channel_plan(packed)
    if p.last or p.over_samples or p.statistic not in (DEVIATION, RESPONSE):
        return None
    return settings.unit(p.channels // p.groups, p.space)


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
    ) -> None:
        """As the C library's. eps: a learned one. join: adds other processes' moments to these."""
        from normkit.kernels.cuda.templates import channel

        if channel_plan(plan).statistic == POSITION:
            self._position_forward(channel_plan(plan), samples, x, weight, bias, y)
            return
        held = None if join is not None else whole(plan)
        if held is not None:
            self._unit_forward(channel_plan(plan), held, samples, x, weight, bias, extra, moments, eps, y)
            return
        w = work(plan, samples, processors(x))
        p = w.plan
        if p.statistic != GIVEN:
            self._measure(w, x, moments)
        if join is not None:
            join()
        if p.statistic == ONLINE:
            args = moments, state, samples, p.channels, w.units, p.decay, 1 - p.decay, MOST
            self._channelwise(channel.run_on, x, p.channels, args)
        arrays = x, weight, bias, extra, moments, eps, y
        self._launch(channel.write, w.grid, (*arrays, *w.sizes, p.eps), w.kind, w.cut.warps)

    def _unit_forward(self, p: ChannelPlan, s: settings.Setting, samples: int, x, weight, bias, extra, moments, eps, y):
        from normkit.kernels.cuda.templates import unit

        units, kind = samples * p.groups, {"STATISTIC": p.statistic, "ACTIVATION": p.activation}
        args = x, weight, bias, extra, moments, eps, y, p.groups, p.channels // p.groups, p.space, units, p.eps
        self._launch(unit.forward, units, args, {**kind, "MEMBERS": s.rows, "BLOCK": s.block}, s.warps)

    def _unit_backward(self, p: ChannelPlan, s: settings.Setting, samples: int, arrays, made, deps) -> None:
        from normkit.kernels.cuda.templates import channel, unit

        x, _, weight, _, extra, moments, *_ = arrays
        units, cells = samples * p.groups, samples * p.channels
        kind = {"STATISTIC": p.statistic, "ACTIVATION": p.activation}
        requires_grad = any(gradient is not None for gradient in made)
        sums = x.new_empty((2 if extra is None else 3) * cells, dtype=torch.float32) if requires_grad else None
        parts = None if deps is None else x.new_empty(units, dtype=torch.float64)
        args = *arrays, sums, parts, p.groups, p.channels // p.groups, p.space, units, cells, p.eps
        self._launch(unit.backward, units, args, {**kind, "MEMBERS": s.rows, "BLOCK": s.block}, s.warps)
        if deps is not None:
            deps.copy_(parts.sum() * -0.5)  # type: ignore[union-attr]
        if requires_grad:
            rows, many = settings.sum_sizes(p.channels, samples)
            args = sums, weight, moments, *made, samples, p.channels, 1, 1, 1, p.channels, units, cells
            self._launch(channel.parameters, -(-p.channels // rows), args, {**kind, "UNITS": rows, "MEMBERS": many}, 4)

    def _measure(self, w: Work, x: Tensor, moments: Tensor) -> None:
        from normkit.kernels.cuda.templates import channel

        p, cut = w.plan, w.cut
        partials = torch.empty(2 * w.cells, dtype=torch.float64, device=x.device)
        kind = {"CENTER": p.statistic in (DEVIATION, ONLINE), "SINGLE": p.statistic == SHARE and p.space == 1}
        shape = {"LAST": p.last, "ROWS": cut.rows, "BLOCK": cut.block}
        sizes = w.samples, p.channels, p.space, cut.steps, cut.pieces, w.cells
        self._launch(channel.measure, w.grid, (x, partials, *sizes), {**kind, **shape}, cut.warps)
        units, many = settings.sum_sizes(w.units, w.outer * cut.pieces)
        args = w.units, w.per_sample, w.outer, cut.pieces, *w.steps, p.space, cut.steps, w.cells
        shape = {"STEP": cut.rows if p.last else cut.block, "UNITS": units, "MEMBERS": many}
        kind = {"CENTER": kind["CENTER"], "LENGTH": p.statistic == SHARE}
        self._launch(channel.join, -(-w.units // units), (partials, moments, *args), {**kind, **shape}, 4)
        if p.statistic == SHARE:
            self._launch(channel.level, w.samples, (moments, w.units, p.channels, p.eps), {"BLOCK": BLOCK}, 4)

    def channel_backward(
        self, plan: bytes, samples: int, x, grad, weight, bias, extra, moments, state, dx, dweight, dbias, dextra, deps,
        *, eps=None, join: Callable[..., None] | None = None,
    ) -> None:  # fmt: skip
        """As the C library's. eps: a learned one. join: adds other processes' pulls to its argument."""
        from normkit.kernels.cuda.templates import channel

        if channel_plan(plan).statistic == POSITION:
            self._position_backward(channel_plan(plan), samples, x, grad, weight, dx, dweight, dbias)
            return
        held = None if join is not None else whole(plan)
        if held is not None:
            arrays = x, grad, weight, bias, extra, moments, eps, dx
            self._unit_backward(channel_plan(plan), held, samples, arrays, (dweight, dbias, dextra), deps)
            return
        w = work(plan, samples, processors(x))
        p, made = w.plan, (dweight, dbias, dextra)
        pulled = None if p.statistic == GIVEN else torch.empty(2 * w.units, dtype=torch.float64, device=x.device)
        if pulled is not None or any(gradient is not None for gradient in made):
            sums = torch.empty((2 if extra is None else 3) * w.cells, dtype=torch.float32, device=x.device)
            arrays = x, grad, weight, bias, extra, moments, eps, sums
            self._launch(channel.reduce, w.grid, (*arrays, *w.sizes, w.cells, p.eps), w.kind, w.cut.warps)
            self._pull(w, sums, weight, moments, eps, pulled, made, deps)
        if join is not None and pulled is not None:
            join(pulled)
        if p.statistic == ONLINE:
            args = pulled, moments, state, samples, p.channels, w.units, 1 - p.decay, p.eps
            self._channelwise(channel.control, x, p.channels, args)
        if dx is not None:
            args = x, grad, weight, bias, extra, moments, eps, pulled, dx, *w.sizes, p.eps
            self._launch(channel.write_back, w.grid, args, w.kind, w.cut.warps)

    def _pull(self, w: Work, sums, weight, moments, eps, pulled, made, deps) -> None:
        from normkit.kernels.cuda.templates import channel

        p = w.plan
        kind = {"STATISTIC": p.statistic, "ACTIVATION": p.activation}
        channel_step = w.outer_step if not w.plan.over_samples else w.group_step
        sample_step = p.channels * w.cut.pieces
        if p.statistic == SHARE:
            steps = channel_step, w.piece_step, sample_step, w.units, w.cells
            args = sums, weight, moments, pulled, p.channels, w.cut.pieces, *steps
            self._launch(channel.share_pulls, w.samples, args, {"BLOCK": BLOCK}, 4)
        elif p.statistic != GIVEN:
            parts = None if deps is None else torch.empty(w.units, dtype=torch.float64, device=sums.device)
            own = made if w.alone else (None, None, None)
            units, many = settings.sum_sizes(w.units, w.outer * w.cut.pieces)
            values = float((w.samples if p.over_samples else w.group) * p.space)
            sizes = w.units, w.per_sample, w.group, w.outer, w.cut.pieces, *w.steps, w.cells, values, p.eps
            more = {"ALONE": w.alone, "EXTRA": own[2] is not None, "UNITS": units, "MEMBERS": many}
            args = sums, weight, moments, eps, pulled, parts, *own, *sizes
            self._launch(channel.pulls, -(-w.units // units), args, {**kind, **more}, 4)
            if deps is not None:
                deps.copy_(parts.sum() * -0.5)  # type: ignore[union-attr]
        if any(gradient is not None for gradient in made) and (not w.alone or p.statistic in (GIVEN, SHARE)):
            units, many = settings.sum_sizes(p.channels, w.samples * w.cut.pieces)
            steps = channel_step, w.piece_step, sample_step, w.units, w.cells
            args = sums, weight, moments, *made, w.samples, p.channels, w.cut.pieces, *steps
            shape = {"UNITS": units, "MEMBERS": many}
            self._launch(channel.parameters, -(-p.channels // units), args, {**kind, **shape}, 4)

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

    def _add_up(self, gains, dweight, biases, dbias) -> None:
        """The programs' shares in the gradients of gain and bias, in their order; `dweight` of one entry takes all."""
        from normkit.kernels.cuda.templates import sums

        if gains is not None and dweight is not None and dweight.numel() == 1:
            add_all(gains, dweight)
            gains = None
        first = biases if gains is None else gains
        if first is None:
            return
        programs, dim = first.shape
        s = settings.SUMS
        arguments = gains, biases, dweight, dbias, programs, dim
        self._launch(sums.add_up_programs, -(-dim // s.block), arguments, {"ROWS": s.rows, "BLOCK": s.block}, s.warps)

    def _channelwise(self, kernel, x: Tensor, channels: int, told: tuple) -> None:
        self._launch(kernel, -(-channels // BLOCK), told, {"BLOCK": BLOCK}, 4)

    def _launch(self, kernel, grid: int | tuple[int, ...], arguments: tuple, constants: dict, warps: int) -> None:
        grid = (grid,) if isinstance(grid, int) else grid
        launch(kernel, grid, arguments, constants, warps, self.interpreted)
