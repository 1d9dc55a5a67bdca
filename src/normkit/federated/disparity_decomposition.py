"""Disparity, decomposed: what of unfairness is everywhere, what lies between clients, and what hides inside them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from normkit.catalog import method
from normkit.federated._information import PAPER, Taylor, expanded, information, newton, table

NAME = "disparity-decomposition"
BARRIERS = [10.0**-power for power in range(1, 12)]


class Disparity(NamedTuple):
    """Parts and wholes in bits; global = unique + redundant, local = unique + masked."""

    unique: Tensor
    redundant: Tensor
    masked: Tensor
    global_: Tensor
    local: Tensor


@method(
    NAME,
    paper=PAPER,
    evidence="equations",
    shape="2 2 2 : unit",
    over="2",
    exempt={"gradcheck": "an audit carries no gradient"},
)
@torch.no_grad()
def disparity_decomposition(joint: Tensor) -> Disparity:
    """Split the information that predictions hold about a sensitive group into what clients share and what they hide.

    For an audit from counts alone. Z the group, Y the prediction, S the client, I mutual information in bits:

        global = I(Z; Y),    local = I(Z; Y | S)
        unique = the least I(Z; Y | S) of all tables with these (S, Z) and (Z, Y) marginals
        redundant = global - unique,    masked = local - unique

    Unique: unfair in one way everywhere. Redundant: unfair by who is at which client, which no client can mend.
    Masked: unfair inside clients, cancelling over them.

    Args:
        joint: counts or probabilities (S, Z, Y) of client, group and prediction, of any alphabets.

    Returns five numbers (), none below 0.

    Demystifying Local and Global Fairness Trade-offs in Federated Learning (Hamman and Dutta, 2024), arXiv 2307.11333.

    Differs from the authors' code in: the least information is found by Newton's method to 1e-8 bits, where theirs
    starts at random and wanders.
    """
    p = table(NAME, joint)
    whole = information(p.sum(0, keepdim=True))
    local = information(p)
    unique = torch.minimum(_least(p), torch.minimum(whole, local)).clamp(min=0)
    parts = (unique, whole - unique, local - unique, whole, local)
    return Disparity(*(part.clamp(min=0).to(joint.dtype) for part in parts))


def _least(p: Tensor) -> Tensor:
    """The least conditional information of tables with the same two marginals.

    Clients, groups and predictions that do not occur are left out; a cell whose marginals forbid it stays 0.
    """
    p = p[p.sum((1, 2)) > 0][:, p.sum((0, 2)) > 0][:, :, p.sum((0, 1)) > 0]
    by_client, by_prediction, group = p.sum(2), p.sum(0), p.sum((0, 2))
    start = by_client.unsqueeze(2) * (by_prediction / group.unsqueeze(1)).unsqueeze(0)
    free = _directions(start)
    x = torch.zeros(free.shape[1], dtype=p.dtype, device=p.device)
    for barrier in BARRIERS:
        x = newton(partial(_bar, start, free, barrier), x)
    return information((start + (free @ x).view_as(start)).clamp(min=0))


def _directions(start: Tensor) -> Tensor:
    """Moves of a table that leave both marginals: for each group, around rectangles of cells."""
    moves = []
    for group in range(start.shape[1]):
        rows = [s for s in range(start.shape[0]) if start[s, group].sum() > 0]
        columns = [y for y in range(start.shape[2]) if start[:, group, y].sum() > 0]
        for s in rows[1:]:
            for y in columns[1:]:
                move = torch.zeros_like(start)
                move[s, group, y] = move[rows[0], group, columns[0]] = 1
                move[s, group, columns[0]] = move[rows[0], group, y] = -1
                moves.append(move.flatten())
    return torch.stack(moves, 1) if moves else start.new_zeros(start.numel(), 0)


def _bar(start: Tensor, free: Tensor, barrier: float, x: Tensor) -> Taylor | None:
    """The information, and a wall before the end of each cell."""
    cells = start + (free @ x).view_as(start)
    inside = (start > 0).flatten()
    if not (cells.flatten()[inside] > 0).all():
        return None
    taylor = expanded(torch.where(start > 0, cells, 0))
    flat = torch.where(inside, cells.flatten(), 1)
    gradient = taylor.gradient - inside * (barrier / flat)
    hessian = taylor.hessian + torch.diag(inside * (barrier / flat.square()))
    value = taylor.value - barrier * flat.log().sum()
    return Taylor(value, free.mT @ gradient, free.mT @ hessian @ free)
