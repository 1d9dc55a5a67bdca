"""Independence Metropolis-Hastings: a flow's samples as proposals of a Markov chain."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

NAME = "imh-step"


class Moved(NamedTuple):
    """The states after a step, both their log densities, and which rows moved."""

    x: Tensor
    log_target: Tensor
    log_proposal: Tensor
    accepted: Tensor


@method(
    NAME,
    paper="On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763",
    shape="N C",
    inputs={
        "log_target": "N",
        "log_proposal": "N",
        "proposed": "N C",
        "log_target_proposed": "N",
        "log_proposal_proposed": "N",
        "uniform": "N : unit",
    },
)
def imh_step(
    x: Tensor,
    log_target: Tensor,
    log_proposal: Tensor,
    proposed: Tensor,
    log_target_proposed: Tensor,
    log_proposal_proposed: Tensor,
    uniform: Tensor,
    *,
    temperature: float = 1.0,
) -> Moved:
    """Take each proposed sample, or keep the old one, so that the chain samples the target exactly.

    For a flow that is nearly right: its samples are the proposals, and the chain mends what it has wrong. Where it is
    far off, proposals are hardly ever taken: walk by ``mala`` or ``neutra``.

    With T the temperature and w = log_target / T - log_proposal, a row is taken where

        log(uniform) < w of the proposed - w of the old

    A ratio that is not a number is no reason to move.

    Args:
        x: the states, (N, D).
        log_target, log_proposal: of the states, under the target and under the flow, (N,). After moves by another
            sampler both are to be worked out anew.
        proposed: fresh samples of the flow, (N, D).
        log_target_proposed, log_proposal_proposed: the same of them, (N,).
        uniform: random numbers of [0, 1), (N,).
        temperature: T.

    Returns ``x``, ``log_target`` and ``log_proposal`` of the rows as they are now, the target's without the
    temperature, and ``accepted``, 0 or 1.

    On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763.
    """
    check.number(NAME, "temperature", temperature, 0.0, open_low=True)
    state = reals(NAME, "x", x, (None, None))
    rows = (len(x),)
    target, proposal = (
        reals(NAME, "log_target", log_target, rows, x),
        reals(NAME, "log_proposal", log_proposal, rows, x),
    )
    new = reals(NAME, "proposed", proposed, x.shape, x)
    new_target = reals(NAME, "log_target_proposed", log_target_proposed, rows, x)
    new_proposal = reals(NAME, "log_proposal_proposed", log_proposal_proposed, rows, x)
    ratio = (new_target / temperature - new_proposal) - (target / temperature - proposal)
    move = reals(NAME, "uniform", uniform, rows, x).log() < ratio
    rest = torch.where(move, new_target, target), torch.where(move, new_proposal, proposal), move
    return Moved(torch.where(move.unsqueeze(1), new, state).to(x.dtype), *(value.to(x.dtype) for value in rest))
