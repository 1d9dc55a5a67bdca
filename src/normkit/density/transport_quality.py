"""How good a flow's samples are as proposals for a target."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.statistics import reals

NAME = "transport-quality"


class Quality(NamedTuple):
    """The acceptance of each pair, and the share of samples that take part."""

    acceptance: Tensor
    participation: Tensor


@method(
    NAME,
    paper="On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763",
    shape="N",
    over="N",
    inputs={"log_weight_target": "N"},
    invariant=("shift",),
)
def transport_quality(log_weight: Tensor, log_weight_target: Tensor) -> Quality:
    """Tell from importance weights how often a chain would move, and how many of its samples count.

    For judging a flow before its samples feed ``imh-step``, ``isir-step`` or a weighted mean. It needs samples of the
    target; without them take the participation alone, which sees what the flow reaches and nothing else.

    A flow that misses a mode has an acceptance near 1 and a silent bias; samples of the target show it. In the order
    given, and with w = softmax(log_weight),

        acceptance = exp(min(0, log_weight - log_weight_target)),    participation = 1 / (N sum w^2)

    Args:
        log_weight: log(target / flow) at samples of the flow, (N,).
        log_weight_target: the same at samples of the target, (N,).

    Returns ``acceptance`` (N,), and ``participation``, a single number from 1 / N to 1. For the participation of the
    target's samples give them as ``log_weight``.

    On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763.
    """
    here = reals(NAME, "log_weight", log_weight, (None,))
    target = reals(NAME, "log_weight_target", log_weight_target, log_weight.shape, log_weight)
    participation = 1 / (torch.softmax(here, 0).square().sum() * len(here))
    return Quality((here - target).clamp(max=0).exp().to(log_weight.dtype), participation.to(log_weight.dtype))
