"""What a batch norm is fed, against what it has averaged."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from normkit.statistics import processes
from normkit.watching.signals.norm import eps_of
from normkit.watching.signals.signal import NORMED, Call, Place, Signal, moments, others, vector
from normkit.watching.store import LEAST, MEAN, MISSING


def read(call: Call) -> Tensor | None:
    """Return running over batch variance (their mean ratio, and its spread), how far the means lie apart, and of how
    many values and samples a statistic is taken; samples are missing where the norm is not known to join them.
    """
    norm = call.module
    running, mean = call.left("running_var"), call.left("running_mean")
    if call.x is None or not norm.training or not isinstance(running, Tensor) or not isinstance(mean, Tensor):
        return None
    x = call.x.detach().float()
    over, eps = others(x, 1), eps_of(norm) or 1e-5
    middle, variance = moments(x, over)
    variance = variance + eps
    ratio = ((running.detach().float() + eps) / variance).log()
    shift = ((mean.detach().float() - middle).square() / variance).mean().sqrt()
    count = torch.tensor(float(x.numel() // x.shape[1]), device=x.device)
    return vector(ratio.mean().exp(), ratio.std(correction=0), shift, count, torch.full_like(count, _samples(norm, x)))


def _samples(norm: nn.Module, x: Tensor) -> float:
    if not isinstance(norm, _BatchNorm):
        return MISSING
    joined = getattr(norm, "sync", "Sync" in type(norm).__name__)
    return float(len(x) * (processes(getattr(norm, "process_group", None)) if joined else 1))


def fits(place: Place) -> bool:
    """Whether a norm keeps an average of variances."""
    return place.what == NORMED and hasattr(place.module, "running_var")


SIGNAL = Signal(
    "running",
    {"variance_ratio": MEAN, "variance_spread": MEAN, "mean_shift": MEAN, "count": LEAST, "samples": LEAST},
    read,
    fits,
)
