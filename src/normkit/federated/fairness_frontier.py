"""The fairness frontier: the least error that limits on global and local unfairness leave."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._information import PAPER, Taylor, expanded, newton, table

NAME = "fairness-frontier"
LEAST = 1e-10  # bits; a limit of 0 has nothing inside it
BARRIERS = [10.0**-power for power in range(1, 10)]


@method(
    NAME,
    paper=PAPER,
    shape="2 2 2 : unit",
    over="2",
    example={"global_limit": 0.05, "local_limit": 0.05},
    exempt={"gradcheck": "an audit carries no gradient"},
)
@torch.no_grad()
def fairness_frontier(joint: Tensor, *, global_limit: float, local_limit: float) -> Tensor:
    """Find the least error of any classifier, random ones too, that is fair within two limits.

    For knowing what fairness costs before training, from counts alone. Z the group, Y the true label, S the client:

        minimize P(Ŷ != Y)  over P(Ŷ | S, Z, Y),    I(Z; Ŷ) <= global_limit,    I(Z; Ŷ | S) <= local_limit

    It bounds what any method can reach; given features reach less.

    Args:
        joint: counts or probabilities (S, Z, 2) of client, group and true label.
        global_limit, local_limit: in bits; below 1e-10 they count as that.

    Returns the error, a number ().

    Demystifying Local and Global Fairness Trade-offs in Federated Learning (Hamman and Dutta, 2024), arXiv 2307.11333.
    """
    p = table(NAME, joint)
    if p.shape[2] != 2:
        raise ValueError(f"{NAME}: joint must be of two labels on axis 2, but its shape is {tuple(joint.shape)}")
    limits = [
        max(check.number(NAME, name, limit, 0.0), LEAST)
        for name, limit in (("global_limit", global_limit), ("local_limit", local_limit))
    ]
    cells = p.flatten() > 0
    most = p.flatten()[cells]
    wrong = torch.tensor([1.0, -1.0], dtype=p.dtype, device=p.device).expand(p.shape).flatten()[cells]
    sums = _sums(p)[:, cells]
    x = most / 2
    for barrier in BARRIERS:
        x = newton(partial(_bar, p, most, wrong, sums, limits, barrier), x)
    error = (wrong * x).sum() + p[:, :, 1].sum()
    return torch.minimum(error, torch.minimum(p[:, :, 0].sum(), p[:, :, 1].sum())).clamp(min=0).to(joint.dtype)


def _sums(p: Tensor) -> Tensor:
    """What adds cells (S, Z, Y) over the true label: (S Z, S Z Y)."""
    eye = torch.eye(p.shape[0] * p.shape[1], dtype=p.dtype, device=p.device)
    return eye.repeat_interleave(p.shape[2], 1)


def _bar(
    p: Tensor, most: Tensor, wrong: Tensor, sums: Tensor, limits: list[float], barrier: float, x: Tensor
) -> Taylor | None:
    """The error of saying yes to ``x`` of each cell, and walls before the cells' ends and both limits."""
    rest = most - x
    if not ((x > 0) & (rest > 0)).all():
        return None
    value = (wrong * x).sum() - barrier * (x.log().sum() + rest.log().sum())
    gradient = wrong - barrier * (1 / x - 1 / rest)
    hessian = torch.diag(barrier * (1 / x.square() + 1 / rest.square()))
    positives = (sums @ x).view(p.shape[:2])
    both = torch.stack([p.sum(2) - positives, positives], 2)
    for limit, wide in zip(limits, (False, True), strict=True):
        taylor = _limit(both, wide, sums)
        room = limit - taylor.value
        if not room > 0:
            return None
        value = value - barrier * room.log()
        gradient = gradient + barrier * taylor.gradient / room
        hessian = hessian + barrier * (taylor.hessian / room + torch.outer(taylor.gradient, taylor.gradient) / room**2)
    return Taylor(value, gradient, hessian)


def _limit(both: Tensor, by_client: bool, sums: Tensor) -> Taylor:
    """The information of predictions (S, Z, 2) about groups, with its derivatives by the cells' yeses."""
    seen = both if by_client else both.sum(0, keepdim=True)
    kept = seen.sum(2) > 0  # of a group that is not at a client nothing is told
    taylor = expanded(seen)
    turn = torch.tensor([-1.0, 1.0], dtype=both.dtype, device=both.device)
    clients = 1 if by_client else both.shape[0]
    pairs = torch.eye(seen.shape[0] * seen.shape[1], dtype=both.dtype, device=both.device).repeat(1, clients)
    way = torch.kron(pairs * kept.flatten().unsqueeze(1), turn.unsqueeze(1)) @ sums
    return Taylor(taylor.value, way.mT @ taylor.gradient, way.mT @ taylor.hessian @ way)
