"""Membrane potential batch normalization: a spiking neuron with a batch norm before its threshold."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops import channel

SURROGATE = "a spike is a step; its gradient is the authors' surrogate"


@method(
    "membrane-batchnorm",
    paper="Membrane Potential Batch Normalization for Spiking Neural Networks (Guo et al., 2023), arXiv 2308.08359",
    shape="T N C *",
    over="N *",
    example={"steps": 5},
    exempt={"gradcheck": SURROGATE, "higher-derivatives": SURROGATE},
    messages="the potential of a time step follows from the spikes of the step before, which its own statistics decide",
)
class MembraneBatchNorm(Channelwise):
    """Integrate the input over time, normalize the membrane potential over the batch, and spike where it is high.

    For spiking networks trained directly: a normalized input does not keep the membrane potential normalized, since it
    is integrated and reset. It comes beside the ``batchnorm`` of the layer in front, not in its place.

    The neuron of a spiking network. With u = 0 at the start, for each of the T time steps,

        u <- decay * u + x[t]
        z = weight * (u - mean) / sqrt(var + eps) + bias
        y[t] = 1 where z > threshold / 2, else 0
        u <- u * (1 - y[t])

    with u's mean and biased variance over batch and space at this step; the running moments, shared by all steps, move
    at every step, towards the unbiased variance. The reset clears u, not z. A spike's gradient is that of a scaled
    tanh: k (1 - tanh²(k (a - 0.5))) / (2 tanh(k / 2)) for a = z / threshold in [0, 1], else 0, with k the temperature;
    it flows through the reset too. In evaluation :meth:`folded_threshold` can take the place of the normalization.

    Args:
        num_features: C, the number of channels.
        steps: T, the number of time steps.
        decay: share of the potential that is left after a step.
        threshold: twice the level of z above which the neuron spikes.
        temperature: k, steepness of the surrogate gradient.
        eps: added to the variance under the root.
        momentum: share of the NEW step in the running moments.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(T, N, C)`` or ``(T, N, C, *space)``; output of the same shape and type, zeros and ones.

    Membrane Potential Batch Normalization for Spiking Neural Networks (Guo et al., 2023), arXiv 2308.08359.

    Differs from the paper, as the authors' code does, in: the neuron fires at half the threshold, and so the folded
    threshold has half of it too. A batch with NaN or infinity enters the running moments, as in torch's BatchNorm.
    """

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        steps: int,
        decay: float = 0.25,
        threshold: float = 1.0,
        temperature: float = 3.0,
        eps: float = 1e-5,
        momentum: float = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, True, sync, process_group)
        self.steps = check.size(self, "steps", steps)
        self.decay = check.number(self, "decay", decay)
        self.threshold = check.number(self, "threshold", threshold, 0, open_low=True)
        self.temperature = check.number(self, "temperature", temperature, 0, open_low=True)
        self.keep_moments(num_features)
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """Spike; in training move the running moments once a time step."""
        self._check(x)
        potential = torch.zeros_like(statistics.accurate(x[0]))
        spikes = []
        for now in x.unbind(0):
            potential = self.decay * potential + now
            spike = self._spike(self._normalize(potential) / self.threshold)
            potential = potential * (1 - spike)
            spikes.append(spike)
        return torch.stack(spikes).to(x.dtype)

    def folded_threshold(self) -> Tensor:
        """Return theta (C,): in evaluation a channel spikes where u > theta, or u < theta where its weight is negative.

        Where a weight is 0, u > theta still tells right: theta is then infinite, or NaN if the bias is exactly at the
        level.
        """
        deviation = (statistics.accurate(self.running_var) + self.eps).sqrt()
        # adding 0 turns a weight of -0 into 0, so that its threshold is one for u > theta
        return self.running_mean + (0.5 * self.threshold - self.bias) * deviation / (self.weight + 0.0)

    def _check(self, x: Tensor) -> None:
        check.floating(self, x)
        if x.dim() < 3 or x.shape[0] != self.steps or x.shape[2] != self.num_features:
            raise ValueError(
                f"MembraneBatchNorm: x must have shape (T={self.steps}, N, C={self.num_features}, ...), "
                f"but its shape is {tuple(x.shape)}"
            )
        if self.training:
            self._require_spread(x[0])

    def _normalize(self, u: Tensor) -> Tensor:
        if not self.training:
            return channel.normalize_with(u, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        z, stats = channel.batch_norm(u, self.weight, self.bias, eps=self.eps, sync=self.sync, group=self.process_group)
        self.follow(stats)
        return z

    def _spike(self, a: Tensor) -> Tensor:
        """A step at 0.5 with the gradient of the soft step."""
        k = self.temperature
        soft = torch.tanh(k * (a.clamp(0, 1) - 0.5)) / (2 * math.tanh(k / 2))
        return (a > 0.5).to(a.dtype) + (soft - soft.detach())
