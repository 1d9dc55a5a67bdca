"""Batch norms estimated anew on the outputs of a quantized convolution, and folded into it again."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.quant._grid import PAPER
from normkit.statistics import accurate, moments

NAME = "tune-batchnorm"
EPS = 1e-5
MOMENTUM = 0.1


class Folded(NamedTuple):
    """The layer with the tuned norm folded in, and the running moments that it was folded with."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="C I 3 3",
    over="N H W",
    inputs={"bias": "C", "gamma": "C", "beta": "C", "outputs": "N C H W"},
    exempt={"gradcheck": "the moments carry no gradient"},
)
@torch.no_grad()
def tune_batchnorm(
    weight: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, *outputs: Tensor, rounds: int = 1
) -> Folded:
    """Put a folded batch norm back, move its moments over outputs of the quantized layer, and fold it in again.

    For a convolution that was quantized with its batch norm folded in: its outputs have other moments than the norm
    learned.

    The norm is put back as one that changes nothing: running mean beta, running variance gamma², gain sqrt(gamma² +
    1e-5), shift beta. Each batch moves the running values by a tenth (unbiased variance). Then

        weight gain / sqrt(v + 1e-5),    (bias - m) gain / sqrt(v + 1e-5) + beta

    Args:
        weight: of the quantized layer, (C, ...).
        bias: (C,).
        gamma: the norm's gain before it was folded.
        beta: the norm's shift.
        outputs: of the quantized layer on the calibration batches, (N, C, H, W) each, at least one.
        rounds: passes over the batches.

    Multiply the layer's weight range and zero point by gain / sqrt(v + 1e-5) too. Few batches leave much of the start.

    Improving Post Training Neural Quantization (Hubara et al., 2021), arXiv 2006.10518.
    """
    check.size(NAME, "rounds", rounds)
    check.floating(NAME, weight, "weight")
    channels = weight.shape[:1]
    for name, value in {"bias": bias, "gamma": gamma, "beta": beta}.items():
        check.values(NAME, name, value, channels, weight)
    if not outputs:
        raise ValueError(f"{NAME}: outputs of at least one batch are needed")
    for y in outputs:
        check.channels_first(NAME, y, len(weight), name="outputs")
    mean, var = accurate(beta), accurate(gamma).square()
    gain = (var + EPS).sqrt()
    batches = [moments(y, [0, *range(2, y.dim())]) for y in outputs]
    for batch in rounds * batches:
        mean = mean + MOMENTUM * (batch.mean - mean)
        var = var + MOMENTUM * (batch.unbiased() - var)
    factor = gain / (var + EPS).sqrt()
    rows = (-1, *(1,) * (weight.dim() - 1))
    params = (accurate(weight) * factor.view(rows), (accurate(bias) - mean) * factor + accurate(beta), mean, var)
    return Folded(*(value.to(weight.dtype) for value in params))
