"""Online normalization: statistics that run from sample to sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise, along
from normkit.catalog import method
from normkit.ops import channel
from normkit.ops.scan import recurrence

CONTROLLED = "training uses the authors' control processes, which are not the derivative of the forward pass"


class _Step(NamedTuple):
    """Per sample and channel, (N, C): 1 / sigma, and the mean of h and of h² over space."""

    rstd: Tensor
    h: Tensor
    h2: Tensor


@method(
    "onlinenorm",
    paper="Online Normalization for Training Neural Networks (Chiley et al., 2019), arXiv 1905.05894",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    exempt={"gradcheck": CONTROLLED, "higher-derivatives": CONTROLLED},
)
class OnlineNorm(Channelwise):
    """Normalize each sample by running moments of the samples before it, and control the gradient in the same way.

    For training without batches: one sample at a time suffices. Per channel, sample by sample in the order of the
    batch, with a = ``forward_decay``, m = ``running_mean``, s = ``running_var``, and mu, var a sample's own moments
    over space,

        h = (x - m) / sqrt(s + eps),   y = guard(weight * h + bias)
        s <- a s + (1 - a) var + a (1 - a) (mu - m)²,   then   m <- m + (1 - a) (mu - m)

    The guard clamps y, or divides a sample by its root mean square over channels and space (``"layer-scaling"``).
    Backward, with b = ``backward_decay``, sigma the root above and g the gradient at h, in the same order,

        q = g - (1 - b) v h,                v <- v + mean_space(q h)
        dx = q / sigma - (1 - b) u,         u <- u + mean_space(dx)

    Both recurrences are linear, and run over the batch without a loop. Evaluation uses m and s as they are, with the
    ordinary gradient. A forward pass in training needs one backward pass.

    Args:
        num_features: C, the number of channels.
        forward_decay: a, share of the OLD value in the running moments, for each sample.
        backward_decay: b, likewise for the control processes.
        eps: added to s under the root.
        affine: learn ``weight`` and ``bias``.
        guard: ``"clamp"``, ``"layer-scaling"`` or None.
        clamp_value: largest size of y under ``"clamp"``.
        guard_eps: added to the mean square of y under the root.
        sync: let the samples of all processes follow each other in the order of the ranks.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``, N of 1 or more.

    Online Normalization for Training Neural Networks (Chiley et al., 2019), arXiv 1905.05894.

    Differs from the authors' code in: the running values have the module's type, and layer scaling takes all channels
    as one group. Their class for whole batches, which approximates the recurrence of v, is another method. A sample
    with NaN or infinity enters the running values, as in torch's BatchNorm.
    """

    running_mean: Tensor
    running_var: Tensor
    u: Tensor
    v: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        forward_decay: float = 0.999,
        backward_decay: float = 0.99,
        eps: float = 1e-5,
        affine: bool = True,
        guard: str | None = "clamp",
        clamp_value: float = 5.0,
        guard_eps: float = 1e-5,
        sync: bool = False,
        process_group=None,
    ):
        forward_decay = check.number(self, "forward_decay", forward_decay, 0, 1)
        super().__init__(num_features, eps, 1 - forward_decay, affine, sync, process_group)
        self.forward_decay = forward_decay
        self.backward_decay = check.number(self, "backward_decay", backward_decay, 0, 1)
        self.guard = check.choice(self, "guard", guard, ("clamp", "layer-scaling", None))
        self.clamp_value = check.number(self, "clamp_value", clamp_value, 0)
        self.guard_eps = check.eps(self, guard_eps, "guard_eps")
        self._keep(running_mean=0, running_var=1, u=0, v=0)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments, and in its backward pass u and v."""
        check.channels_first(self, x, self.num_features)
        given = statistics.accurate(x)
        if not self.training:
            y = channel.normalize_with(given, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return self._guard(y).to(x.dtype)
        with statistics.once(self), torch.no_grad():
            mean = channel.mean_over_space(given)
            centered = given - mean
            step = self._step(mean.flatten(1), _mean_square(centered))
        y = _OnlineStep.apply(given, self.weight, self.bias, self.u, self.v, centered, step, self)
        return self._guard(y).to(x.dtype)

    def _guard(self, y: Tensor) -> Tensor:
        if self.guard == "clamp":
            return y.clamp(-self.clamp_value, self.clamp_value)
        if self.guard == "layer-scaling":
            square = y.square().mean(tuple(range(1, y.dim())), keepdim=True)
            return y * (square + self.guard_eps).rsqrt()
        return y

    def _step(self, mean: Tensor, var: Tensor) -> _Step:
        """Move the running moments by each sample's own; return what each sample is normalized by."""
        a = self.forward_decay
        decay = torch.full_like(mean, a)
        m, last_m = self._recur(decay, (1 - a) * mean, self.running_mean)
        off = mean - m
        s, last_s = self._recur(decay, (1 - a) * var + a * (1 - a) * off.square(), self.running_var)
        self.running_mean.copy_(last_m)
        self.running_var.copy_(last_s)
        rstd = (s + self.eps).rsqrt()
        return _Step(rstd, off * rstd, (off.square() + var) * rstd.square())

    def _recur(self, decay: Tensor, drive: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        return recurrence(decay, drive, start.to(drive.dtype), sync=self.sync, group=self.process_group)

    def _control(self, g: Tensor, gh: Tensor, step: _Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """From the means of g and g h over space, u and v before each sample and after the last."""
        share = 1 - self.backward_decay
        v, last_v = self._recur(1 - share * step.h2, gh, self.v)
        decay = torch.full_like(g, self.backward_decay)
        u, last_u = self._recur(decay, (g - share * v * step.h) * step.rstd, self.u)
        return u, v, last_u, last_v


def _mean_square(centered: Tensor) -> Tensor:
    """The mean of x² over space, (N, C)."""
    rows = centered.flatten(2) if centered.dim() > 2 else centered.unsqueeze(-1)
    return torch.linalg.vector_norm(rows, dim=-1).square() / rows.shape[-1]


class _OnlineStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, u, v, centered, step, norm):
        ctx.save_for_backward(centered, weight, *step)
        ctx.u, ctx.v, ctx.norm = u, v, norm
        gain = step.rstd if weight is None else step.rstd * weight
        shift = step.h if weight is None else step.h * weight + bias
        return torch.addcmul(along(shift, x), centered, along(gain, x))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (centered, weight, *rest), norm = ctx.saved_tensors, ctx.norm
        step, share, space = _Step(*rest), 1 - norm.backward_decay, math.prod(grad.shape[2:])
        total = statistics.sum_over(grad, range(2, grad.dim()))
        product = grad * centered
        along_h = statistics.sum_over(product, range(2, grad.dim())) * step.rstd + total * step.h
        gain = step.rstd if weight is None else step.rstd * weight
        scale = 1.0 if weight is None else weight
        u, v, last_u, last_v = norm._control(scale * total / space, scale * along_h / space, step)
        ctx.u.copy_(last_u)
        ctx.v.copy_(last_v)
        pull = -share * v * step.rstd
        # into the product's memory: on a CPU fresh memory of this size costs more than the arithmetic
        dx = torch.mul(grad, along(gain, grad), out=product)
        dx.addcmul_(centered, along(pull * step.rstd, grad)).add_(along(pull * step.h - share * u, grad))
        if weight is None:
            return dx, None, None, None, None, None, None, None
        return dx, along_h.sum(0).to(weight.dtype), total.sum(0).to(weight.dtype), *[None] * 5
