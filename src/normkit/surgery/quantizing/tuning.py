"""One linear tuned by AdaQuant on its own outputs, as :func:`normkit.quantize` does it layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.quant.adaquant import adaquant
from normkit.quant.learned_rounding import LearnedRounding
from normkit.quant.measured_range import MeasuredRange

BATCH, HELD = 50, 8  # rows of a step, as in the authors' runs; one row in so many is not trained on


@torch.no_grad()
def tune(rounding: LearnedRounding, layer: nn.Linear, x: Tensor, steps: int, generator: torch.Generator) -> bool:
    """Tune a linear's weight, bias and grid, and tell whether its outputs came closer to what they were.

    The comparison is on rows of ``x`` that it is not tuned on. Where they came closer, ``layer`` has the tuned numbers,
    and ``rounding`` the grid; else both stay.
    """
    rows, weight = x.float(), layer.weight.detach().float()
    bias = None if layer.bias is None else layer.bias.detach().float()
    y = F.linear(rows, weight, bias)
    kept = own = torch.ones(len(rows), dtype=torch.bool, device="cpu")
    if len(rows) >= HELD:
        kept = torch.arange(len(rows), device="cpu") % HELD == HELD - 1
        own = ~kept
    order = torch.randint(int(own.sum()), (steps, BATCH), generator=generator, device="cpu").to(rows.device)
    span, low = MeasuredRange(per_channel=True).to(rows.device)(weight)
    one = rows.new_ones(1)  # the inputs have no grid
    tuned = adaquant(
        *(weight, bias, span, low, one, 0 * one, rows[own], y[own], order, rows[kept], y[kept]),
        bits=rounding.bits,
        input_bits=0,
    )
    if not bool(tuned.after < tuned.before):
        return False
    layer.weight.data.copy_(tuned.weight)
    if tuned.bias is not None:
        layer.bias.data.copy_(tuned.bias)
    stored = torch.finfo(rounding.scale.dtype)
    scale = tuned.weight_range.clamp(min=torch.finfo(torch.float32).tiny) / rounding.most
    scale = rounding.scale.copy_(scale.clamp(min=stored.tiny * stored.eps)).float()
    rounding.zero_point.copy_((-tuned.weight_zero_point / scale).round().clamp(0, rounding.most))
    steps_up = layer.weight.float() / scale.unsqueeze(1)
    rounding.alpha.data.copy_(steps_up - steps_up.floor() - 0.5)  # whose sign says which point is nearer
    return True
