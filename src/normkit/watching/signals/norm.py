"""What a norm is fed, against its eps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from normkit.watching.signals.signal import NORMED, Call, Signal, moments, others, some
from normkit.watching.store import MEAN


def eps_of(module: nn.Module) -> float | None:
    """Return a norm's eps, by the names that it goes under."""
    for name in ("eps", "variance_epsilon", "epsilon"):
        eps = getattr(module, name, None)
        if isinstance(eps, int | float):
            return float(eps)
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


SIGNAL = Signal("norm", {"eps_share": MEAN}, read, lambda place: place.what == NORMED)
