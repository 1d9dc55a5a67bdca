"""Scaled weight standardization: convolutions that keep the variance of their input, without a norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.statistics import accurate
from normkit.weight._shapes import rows

nf_gamma = {
    "identity": 1.0,
    "celu": 1.270926833152771,
    "elu": 1.2716004848480225,
    "gelu": 1.7015043497085571,
    "glu": 1.8484294414520264,
    "leaky_relu": 1.70590341091156,
    "log_sigmoid": 1.9193484783172607,
    "log_softmax": 1.0002083778381348,
    "relu": 1.7139588594436646,
    "relu6": 1.7131484746932983,
    "selu": 1.0008515119552612,
    "sigmoid": 4.803835391998291,
    "silu": 1.7881293296813965,
    "softsign": 2.338853120803833,
    "softplus": 1.9203323125839233,
    "tanh": 1.5939117670059204,
}
"""1 / the deviation of act(z), z standard normal, as the authors measured it."""


@method(
    "scaled-weight-standardization",
    paper="Characterizing signal propagation to close the performance gap in unnormalized ResNets (Brock et al., "
    "2021), arXiv 2101.08692",
    evidence="library",
    shape="C I",
    over="I",
    example={"shape": lambda filters: (filters, 5)},
    invariant=("shift", "scale"),
)
class ScaledWeightStandardization(Parametrization):
    """Give each filter mean 0 and length 1, then multiply it by a learned gain.

    For residual networks without normalization: a convolution then gives back the variance that comes in, and
    activations are multiplied by the ``nf_gamma`` of their kind. With the mean m and biased variance v of the N
    entries of a filter,

        clamp    weight = gamma gain (raw - m) / sqrt(max(N v, eps))
        add      weight = gamma gain (raw - m) / sqrt(N (v + eps))

    Args:
        shape: of the weight; the first axis counts the filters.
        gamma: for those who have the activation's gain in the weight; it is in one place, not in both.
        eps: 1e-4 is large on purpose: small filters stay small. timm has 1e-6 with ``"add"``.
        eps_mode: ``"clamp"`` or ``"add"``. Below the clamp no gradient flows through v.
        gain_init: what the gain starts at.

    State: ``gain`` (shape[0],). Raw weights are the caller's; the authors draw them from N(0, 1 / N).

    Characterizing signal propagation to close the performance gap in unnormalized ResNets (Brock et al., 2021), arXiv
    2101.08692; High-Performance Large-Scale Image Recognition Without Normalization (Brock et al., 2021), arXiv
    2102.06171.
    """

    per_output = True

    def __init__(
        self,
        shape: Sequence[int],
        *,
        gamma: float = 1.0,
        eps: float = 1e-4,
        eps_mode: str = "clamp",
        gain_init: float = 1.0,
    ):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape, least=2)
        self.gamma, self.eps = check.number(self, "gamma", gamma), check.eps(self, eps)
        self.eps_mode = check.choice(self, "eps_mode", eps_mode, ("clamp", "add"))
        self.gain = nn.Parameter(torch.full((self.shape[0],), check.number(self, "gain_init", gain_init)))

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        if self.eps_mode == "clamp":
            return standardize(raw, self.gain, self.eps, self.gamma)
        wide = accurate(raw).flatten(1)
        gain = rows(self.gain, wide) * (self.gamma / math.sqrt(wide.shape[1]))
        return (ops.row_norm(wide, rule=ops.Row(center=True, eps=self.eps)) * gain).view(self.shape).to(raw.dtype)


def standardize(raw: Tensor, gain: Tensor, eps: float, gamma: float = 1.0) -> Tensor:
    """Return gamma gain (raw - m) / sqrt(max(N v, eps)), row by row."""
    wide = accurate(raw).flatten(1)
    directions = ops.row_norm(wide, rule=ops.Row(center=True, eps=math.sqrt(eps), eps_place="floor"))
    return (directions * (rows(gain, wide) * gamma)).view(raw.shape).to(raw.dtype)
