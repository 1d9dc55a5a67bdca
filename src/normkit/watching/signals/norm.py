"""What a norm is fed: against its eps, and for a batch norm against what it has averaged."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from normkit.watching.signals.signal import Call, Signal, moments, others, some, vector
from normkit.watching.store import LEAST, MEAN


def eps_of(module: nn.Module) -> float | None:
    """Return a norm's eps, by the names that it goes under."""
    for name in ("eps", "variance_epsilon", "epsilon"):
        found = getattr(module, name, None)
        if isinstance(found, int | float):
            return float(found)
    return None


def read(call: Call) -> Tensor | None:
    """Return the share of eps in what the norm divides by: 0 where it only guards, 1 where nothing is normalized."""
    eps = eps_of(call.module)
    if call.x is None or eps is None or call.x.dim() < 2:
        return None
    x = some(call.x)
    if isinstance(call.module, _BatchNorm):
        over = others(x, 1)
    else:
        over = [x.dim() - 1] if call.axis % x.dim() == x.dim() - 1 else list(range(1, x.dim()))
    centred = "rms" not in type(call.module).__name__.lower()
    power = moments(x, over)[1] if centred else x.square().mean(over)
    return (eps / (power + eps)).mean()[None] if eps else torch.zeros(1, device=x.device)


NORM = Signal("norm", {"eps_share": MEAN}, read)


def read_running(call: Call) -> Tensor | None:
    """Return running over batch variance (their mean ratio, and its spread), how far the means lie apart, and of how
    many values a statistic is taken.
    """
    norm = call.module
    running, mean = getattr(norm, "running_var", None), getattr(norm, "running_mean", None)
    if call.x is None or not norm.training or not isinstance(running, Tensor) or not isinstance(mean, Tensor):
        return None
    x = call.x.detach().float()
    over, eps = others(x, 1), eps_of(norm) or 1e-5
    middle, variance = moments(x, over)
    variance = variance + eps
    ratio = ((running.detach().float() + eps) / variance).log()
    shift = ((mean.detach().float() - middle).square() / variance).mean().sqrt()
    count = torch.tensor(float(x.numel() // x.shape[1]), device=x.device)
    return vector(ratio.mean().exp(), ratio.std(correction=0), shift, count)


RUNNING = Signal(
    "running", {"variance_ratio": MEAN, "variance_spread": MEAN, "mean_shift": MEAN, "count": LEAST}, read_running
)
