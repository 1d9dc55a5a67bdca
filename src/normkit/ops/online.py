"""Statistics that run from sample to sample: each sample of ``(N, C, *space)`` is normalized by those before it.

With m, s the running mean and variance of a channel and r = 1 / sqrt(s + eps), h = (x - m) r and y = weight h + bias;
then m and s take in the sample's own moments. The backward pass runs in the same order with running values u and v of
the gradient, and is not the derivative of the forward pass. The formula runs over the batch without a loop; the C
kernel takes sample after sample, each in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.ops import channel, eager, trial
from normkit.ops.derivatives import once_differentiable
from normkit.ops.scan import recurrence
from normkit.running import move_finite

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    Pair = tuple[Tensor, Tensor]

REFUSAL = "OnlineNorm: in training its backward pass has no derivative"


class Control(NamedTuple):
    """How the statistics run: the old value's share for each sample, of moments forward and of u and v backward."""

    eps: float
    forward_decay: float
    backward_decay: float
    sync: bool = False
    group: ProcessGroup | None = None

    def joins(self) -> bool:
        """Whether other processes have samples before or after these."""
        return self.sync and statistics.processes(self.group) > 1


class _Step(NamedTuple):
    """Per sample and channel, (N, C), in float64: m and r, and the means of h and of h² over space."""

    mean: Tensor
    rstd: Tensor
    h: Tensor
    h2: Tensor


def online_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    moments: tuple[Tensor, Tensor],
    pulls: tuple[Tensor, Tensor],
    control: Control,
    *,
    limit: float | None = None,
) -> Tensor:
    """Normalize, clamp to ±``limit``, move ``moments`` (m, s) in place, and in the backward pass ``pulls`` (u, v).

    >>> mean, var = torch.zeros(1), torch.ones(1)
    >>> pulls = torch.zeros(1), torch.zeros(1)
    >>> y = online_norm(torch.tensor([[4.0], [4.0]]), None, None, (mean, var), pulls, Control(0.0, 0.5, 0.5))
    >>> y.flatten(), mean, var
    (tensor([4.0000, 0.9428]), tensor([3.]), tensor([3.2500]))
    """
    _check(x, weight, bias, moments, pulls)
    kind = control._replace(group=None), limit, not x.is_contiguous(), channel.size_of(x)
    if eager.runs_formula("online_norm", _against(x, control), x, weight, bias, *moments, *pulls, kind=kind):
        return _formula(x, weight, bias, moments, pulls, control, limit)
    activation = channel.AFFINE if limit is None else channel.CLAMP
    rule = channel.Rule("online_norm", _formula, channel.ONLINE, activation, eps=control.eps)
    x, weight, bias = channel.arrange(x, rule), eager.pack(weight), eager.pack(bias)
    return _ByKernel.apply(x, weight, bias, moments, pulls, control, limit, rule)


@trial.call("online_norm", lambda kind: kind[3].axes, most=channel.POSITIONS)
def _tried(kind: tuple, tensors: list) -> Tensor:
    x, weight, bias, *state = tensors
    state = [value.clone() for value in state]
    return online_norm(x, weight, bias, tuple(state[:2]), tuple(state[2:]), kind[0], limit=kind[1])


def _check(x, weight, bias, moments, pulls) -> None:
    channel.check_channels("online_norm", x)
    given = [("weight", weight), ("bias", bias), *(("moments", m) for m in moments), *(("pulls", p) for p in pulls)]
    for name, tensor in given:
        if tensor is not None:
            check.shape("online_norm", name, tensor, x.shape[1:2])


def _against(x: Tensor, control: Control) -> str | None:
    if control.joins():
        return "its statistics run over processes"
    if x.shape[2:].numel() == 1:
        return "single values are nothing to keep in the cache: the formula is as fast"
    return None


def _formula(x, weight, bias, moments, pulls, control: Control, limit: float | None) -> Tensor:
    exact = statistics.accurate(x)
    with torch.no_grad():
        mean, var, _ = channel.instance_moments(exact)
        var = var.clamp(max=torch.finfo(var.dtype).max)  # as an infinite one would stay for ever
        step = _step(statistics.widest(mean), statistics.widest(var), moments, control)
    y = _ByFormula.apply(exact, weight, bias, *pulls, step, control)
    return (y if limit is None else y.clamp(-limit, limit)).to(x.dtype)


class _Block(NamedTuple):
    """What a process' samples do to two running values of each channel, the second of which follows the first.

    z becomes decay z + drive, and w becomes fall w + own + slope d + bend d², with d = z - pivot. So one message of
    these numbers tells each process where its samples start. At an offset d is small if the pivot lies near z; squares
    about 0 would cancel.
    """

    pivot: Tensor
    decay: Tensor
    drive: Tensor
    fall: Tensor
    own: Tensor
    slope: Tensor
    bend: Tensor


def _follow(
    run: Callable[[Tensor, Tensor], tuple[Pair, Pair]],
    block: Callable[[Tensor], _Block],
    running: Pair,
    control: Control,
) -> tuple[Pair, Pair]:
    """Run two values over the samples of all processes, in the order of the ranks: both before each, and at the end."""
    first, second = (statistics.widest(value) for value in running)
    if control.joins():
        (first, second), last = _past_others(block(torch.zeros_like(first)), (first, second), control)
        return run(first, second)[0], last
    return run(first, second)


def _past_others(own: _Block, start: Pair, control: Control) -> tuple[Pair, Pair]:
    """Two running values before this process' samples, and after those of all processes."""
    blocks = _Block(*statistics.gather_over_processes(torch.stack(own), control.group).unbind(1))
    z, last_z = recurrence(blocks.decay, blocks.drive, start[0])
    d = z - blocks.pivot
    w, last_w = recurrence(blocks.fall, blocks.own + d * (blocks.slope + d * blocks.bend), start[1])
    rank = torch.distributed.get_rank(control.group)
    return (z[rank], w[rank]), (last_z, last_w)


def _step(mean: Tensor, var: Tensor, moments: Pair, control: Control) -> _Step:
    """Move the running moments by each sample's own; return what each sample is normalized by."""
    a = control.forward_decay
    decay = torch.full_like(mean, a)

    def run(m: Tensor, s: Tensor) -> tuple[Pair, Pair]:
        m, last_m = recurrence(decay, (1 - a) * mean, m)
        s, last_s = recurrence(decay, (1 - a) * (var + a * (mean - m).square()), s)
        return (m, s), (last_m, last_s)

    def block(zero: Tensor) -> _Block:
        pivot = torch.nan_to_num(mean.sum(0) / max(len(mean), 1), 0, 0, 0)
        (m, _), (last, own) = run(pivot, zero)
        power, fall = recurrence(decay, torch.zeros_like(decay), torch.ones_like(zero))
        share = (1 - a) * a * power
        _, slope = recurrence(decay, -2 * share * (mean - m), zero)
        _, bend = recurrence(decay, share * power, zero)
        return _Block(pivot, fall, last - fall * pivot, fall, own, slope, bend)

    before, last = _follow(run, block, moments, control)
    for value, new in zip(moments, last, strict=True):
        value.copy_(new)
    return _normalize(mean, var, *before, control.eps)


def _normalize(mean: Tensor, var: Tensor, m: Tensor, s: Tensor, eps: float) -> _Step:
    """From a sample's own moments and the running ones before it."""
    rstd = (s + eps).rsqrt()
    off = mean - m
    return _Step(m, rstd, off * rstd, (off.square() + var) * rstd.square())


def _along(value: Tensor, x: Tensor) -> Tensor:
    return channel.along(value.to(x.dtype), x)


def _h(x: Tensor, step: _Step) -> Tensor:
    return (x - _along(step.mean, x)) * _along(step.rstd, x)


def _pull(g: Tensor, gh: Tensor, pulls: Pair, step: _Step, control: Control) -> Pair:
    """From the means of g and g h over space, u and v before each sample; move ``pulls``."""
    b = control.backward_decay
    decay, fall = 1 - (1 - b) * step.h2, torch.full_like(g, b)

    def run(v: Tensor, u: Tensor) -> tuple[Pair, Pair]:
        v, last_v = recurrence(decay, gh, v)
        u, last_u = recurrence(fall, (g - (1 - b) * v * step.h) * step.rstd, u)
        return (v, u), (last_v, last_u)

    def block(zero: Tensor) -> _Block:
        none, one = torch.zeros_like(g), torch.ones_like(zero)
        _, (drive, own) = run(zero, zero)
        power, product = recurrence(decay, none, one)
        _, slope = recurrence(fall, -(1 - b) * power * step.h * step.rstd, zero)
        return _Block(zero, product, drive, recurrence(fall, none, one)[1], own, slope, zero)

    (v, u), (last_v, last_u) = _follow(run, block, (pulls[1], pulls[0]), control)
    move_finite(pulls[0], last_u)
    move_finite(pulls[1], last_v)
    return u, v


def _control(grad, x, weight, bias, step: _Step, pulls, control: Control) -> tuple[Tensor | None, ...]:
    """Gradients of x, and of weight and bias where they are; ``pulls`` move."""
    axes, space = range(2, grad.dim()), math.prod(grad.shape[2:])
    exact, h = statistics.accurate(grad), _h(x, step)
    total, total_h = statistics.sum_over(exact, axes), statistics.sum_over(exact * h, axes)
    scale = total.new_ones(total.shape[1]) if weight is None else weight
    u, v = _pull(
        statistics.widest(scale * total / space), statistics.widest(scale * total_h / space), pulls, step, control
    )
    share = 1 - control.backward_decay
    dx = exact * _along(scale * step.rstd, x) - h * _along(share * v * step.rstd, x) - _along(share * u, x)
    dweight = None if weight is None else total_h.sum(0).to(weight.dtype)
    return dx.to(grad.dtype), dweight, None if bias is None else total.sum(0).to(bias.dtype)


class _ByFormula(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, u, v, step, control):
        return channel.affine(_h(x, step), weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, u, v, step, control = inputs
        ctx.save_for_backward(x, weight, bias, *step)
        ctx.about = (u, v), control

    @staticmethod
    @once_differentiable(REFUSAL)
    def backward(ctx, saved, grad):
        x, weight, bias, *step = saved
        return *_control(grad, x, weight, bias, _Step(*step), *ctx.about), *[None] * 4


class _ByKernel(torch.autograd.Function):
    """Keeps x and four numbers a sample and channel."""

    @staticmethod
    def forward(ctx, x, weight, bias, moments, pulls, control, limit, rule):
        extra = None if limit is None else x.new_full((x.shape[1],), limit, dtype=torch.float64)
        state = torch.cat(moments).double()
        forward = rule._replace(decay=control.forward_decay)
        y, stats = channel.kernel_forward(forward, x, weight, bias, extra, None, state)
        for buffer, value in zip(moments, state.chunk(2), strict=True):
            buffer.copy_(value)
        ctx.save_for_backward(x, weight, bias, extra, stats)
        ctx.about = rule, pulls, control
        return y

    @staticmethod
    @once_differentiable(REFUSAL)
    def backward(ctx, saved, grad):
        x, weight, bias, extra, stats = saved
        rule, pulls, control = ctx.about
        if eager.runs_formula("online_norm backward", None, grad):
            return *_without_kernel(grad, x, weight, bias, extra, stats, pulls, control), *[None] * 5
        backward = rule._replace(decay=control.backward_decay)
        state = torch.cat(pulls).double()
        needs = (*ctx.needs_input_grad[:3], False, False)
        dx, dweight, dbias, *_ = channel.kernel_backward(
            backward, x, weight, bias, extra, None, stats, grad, needs, state
        )
        for buffer, value in zip(pulls, state.chunk(2), strict=True):
            move_finite(buffer, value)
        return dx, dweight, dbias, *[None] * 5


def _without_kernel(grad, x, weight, bias, extra, kept, pulls, control: Control) -> tuple[Tensor | None, ...]:
    """The kernel's backward pass where ``grad`` is not a tensor for it."""
    exact = statistics.accurate(x)
    m, s, mean, var = kept.view(4, *x.shape[:2])
    step = _normalize(mean, var, m, s, control.eps)
    if extra is not None:
        grad = torch.where(channel.affine(_h(exact, step), weight, bias).abs() <= extra[0], grad, 0)
    return _control(grad, exact, weight, bias, step, pulls, control)
