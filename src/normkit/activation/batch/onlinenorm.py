"""Online normalization: statistics that run from sample to sample."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.running import is_averaging, once, track

CONTROLLED = "training uses the authors' control processes, which are not the derivative of the forward pass"


@method(
    "onlinenorm",
    paper="Online Normalization for Training Neural Networks (Chiley et al., 2019), arXiv 1905.05894",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    exempt={"gradcheck train": CONTROLLED, "higher-derivatives": CONTROLLED},
)
class OnlineNorm(Channelwise):
    """Normalize each sample by running moments of the samples before it, and control the gradient in the same way.

    For training without batches: one sample at a time suffices. Where the order of samples must not matter, take
    ``groupnorm``.

    Per channel, sample by sample in the order of the batch, with a = ``forward_decay``, m = ``running_mean``, s =
    ``running_var``, and mu, var a sample's own moments over space,

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
    with NaN or infinity enters the running moments, as in torch's BatchNorm. ``u`` and ``v`` are in units of the loss
    scale, where there is one; a gradient that overflows leaves them as they are.
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
        self.keep_moments(num_features, batches=False)
        self.keep(u=torch.zeros(num_features), v=torch.zeros(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments, and in its backward pass u and v."""
        check.channels_first(self, x, self.num_features)
        averages = self.training and is_averaging(self.running_mean)
        if averages:
            self._average(x)
        if not self.training or averages:
            wide = statistics.accurate(x)
            y = ops.normalize_with(wide, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return self._guard(y).to(x.dtype)
        control = ops.Control(self.eps, self.forward_decay, self.backward_decay, self.sync, self.process_group)
        wide = statistics.accurate(x) if self.guard == "layer-scaling" else x
        limit = self.clamp_value if self.guard == "clamp" else None
        moments, pulls = (self.running_mean, self.running_var), (self.u, self.v)
        with once(self, wide):
            y = ops.online_norm(wide, self.weight, self.bias, moments, pulls, control, limit=limit)
        return y if limit is not None else self._guard(y).to(x.dtype)

    def _average(self, x: Tensor) -> None:
        """Take a batch in as one sample is, but by the share that makes plain averages of m and s."""
        batch = self._moments(statistics.accurate(x).detach())
        square = (batch.mean - self.running_mean).square()
        track(self.running_var, batch.var, self.momentum, lambda s, var, a: s + a * (var + (1 - a) * square - s))
        track(self.running_mean, batch.mean, self.momentum)

    def _guard(self, y: Tensor) -> Tensor:
        if self.guard == "clamp":
            return y.clamp(-self.clamp_value, self.clamp_value)
        if self.guard == "layer-scaling":
            square = y.square().mean(tuple(range(1, y.dim())), keepdim=True)
            return y * (square + self.guard_eps).rsqrt()
        return y
