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
    """Return running over batch variance (their mean ratio, and its spread), and how far the means lie apart.

    Then of how many values that is in this process, and of how many values and samples the norm takes its statistics:
    those of all processes that it joins. Samples are missing where the norm is not known to join them.
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
    count, together = float(x.numel() // x.shape[1]), _together(norm)
    samples = len(x) * together if isinstance(norm, _BatchNorm) else MISSING
    sizes = torch.tensor([count, count * together, samples], dtype=torch.float32, device=x.device)
    return torch.cat([vector(ratio.mean().exp(), ratio.std(correction=0), shift), sizes])


def _together(norm: nn.Module) -> int:
    """Return how many processes join their statistics."""
    joined = getattr(norm, "sync", "Sync" in type(norm).__name__)
    return processes(getattr(norm, "process_group", None)) if joined else 1


def fits(place: Place) -> bool:
    """Whether a norm keeps an average of variances."""
    return place.what == NORMED and hasattr(place.module, "running_var")


SIGNAL = Signal(
    "running",
    {
        "variance_ratio": MEAN,
        "variance_spread": MEAN,
        "mean_shift": MEAN,
        "count": LEAST,
        "values": LEAST,
        "samples": LEAST,
    },
    read,
    fits,
)
