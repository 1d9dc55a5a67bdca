"""FedLAW: a server that learns how much each client counts, and how far their sum shrinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.federated import _states
from normkit.federated._logits import FUNCTIONS, PAPER, aggregate, weights
from normkit.kinds import beside

NAME = "fedlaw"
OPTIMIZERS = ("adam", "sgd")
HALVED = 20  # epochs after which the learning rate is halved


class Learned(NamedTuple):
    """The new state, the shrink factor, and the clients' shares (K,)."""

    state: dict[str, Tensor]
    shrink: Tensor
    share: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="K C I",
    over="K",
    inputs={"bias": "K C", "count": "K : unit", "x": "S N I", "y": "S N : index C"},
    example={"entries": ("weight", "bias"), "epochs": 2},
    exempt={"gradcheck": "the server's step carries no gradient"},
)
def fedlaw(
    *states: Tensor,
    entries: Sequence[str],
    function: str = "exp",
    optimizer: str = "adam",
    lr: float = 0.01,
    epochs: int = 20,
) -> tuple[Tensor, ...]:
    """Learn on the server's own data which clients count how much, and how far the sum of their states shrinks.

    For a server that has some labelled data of its own and may judge the clients by it. Without such data clients are
    weighed by their sample counts; given the shares, ``fedlaw-aggregate`` sums up.

    As :func:`learn` beside it, for a linear map: entries weight (K, C, D) and bias (K, C), and cross-entropy.

    Args:
        states: weights and biases of the clients, their sample counts (K,), then the server's data: x (B, N, D) and
            classes y (B, N), B batches.
        entries: the names of weight and bias.
        function: of ``fedlaw-aggregate``.
        optimizer: ``"adam"`` with betas (0.5, 0.999), or ``"sgd"`` with momentum 0.9.
        lr: halved every 20 epochs.
        epochs: passes over the batches.

    Returns the state, one tensor an entry, the shrink factor and the shares (K,). Start: shares by sample counts for
    ``"exp"``, all alike for ``"square"``; factor 1.

    Revisiting Weighted Aggregation in Federated Learning with Neural Networks (Li et al., 2023), arXiv 2302.10911.
    """
    if len(check.names(NAME, "entries", entries)) != 2:
        raise ValueError(f"{NAME}: entries must name a weight and a bias, not {list(entries)}; learn takes any model")
    if len(states) != 5:
        raise ValueError(f"{NAME}: states must be weight, bias, count, x, y, but there are {len(states)} tensors")
    for name, value in zip((*entries, "count", "x", "y"), states, strict=True):
        if not isinstance(value, Tensor):
            raise TypeError(f"{NAME}: states {name} must be a tensor, not {type(value).__name__}")
    *own, count, x, y = states
    check.shape(NAME, f"states {entries[0]}", own[0], (None, None, None))
    check.shape(NAME, f"states {entries[1]}", own[1], own[0].shape[:2])
    check.shape(NAME, "states x", x, (None, None, own[0].shape[-1]))
    check.index(NAME, "states y", y, x.shape[:2], own[0].shape[1], x)
    clients = [dict(zip(entries, values, strict=True)) for values in zip(*own, strict=True)]

    def loss_of_state(state: Mapping[str, Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        weight, bias = (state[name].double() for name in entries)
        return F.cross_entropy(F.linear(batch[0].double(), weight, bias), batch[1])

    options = {"function": function, "optimizer": optimizer, "lr": lr, "epochs": epochs}
    solution = learn(clients, count, loss_of_state, list(zip(x, y, strict=True)), **options)
    return (*solution.state.values(), solution.shrink.to(own[0].dtype), solution.share.to(own[0].dtype))


@beside(fedlaw)
def learn(
    states: Sequence[Mapping[str, Tensor]],
    count: Tensor,
    loss_of_state: Callable[[Mapping[str, Tensor], object], Tensor],
    batches: Iterable[object],
    *,
    function: str = "exp",
    optimizer: str = "adam",
    lr: float = 0.01,
    epochs: int = 20,
) -> Learned:
    """Learn shares and shrink factor for any model: ``loss_of_state(state, batch)`` is what a batch says of a state.

    ``states`` are the clients' parameters, ``count`` their sample counts (K,). ``torch.func.functional_call`` runs a
    model with a state.
    """
    stacked = {name: value.detach() for name, value in _states.stack(states).items()}
    for name, value in stacked.items():
        check.floating(NAME, value, f"states {name}")
        _states.finite(NAME, f"states {name}", value)
    check.choice(NAME, "function", function, FUNCTIONS)
    check.repeatable(NAME, "batches", batches)
    samples = torch.as_tensor(count, device=next(iter(stacked.values())).device).detach()
    start = _start(_states.counts(NAME, "count", samples, len(states)), function)
    with torch.enable_grad():
        free = start.requires_grad_()
        steps = _optimizer(free, optimizer, check.number(NAME, "lr", lr, 0.0))
        schedule = torch.optim.lr_scheduler.StepLR(steps, HALVED, 0.5)
        for _ in range(check.size(NAME, "epochs", epochs, least=0)):
            for batch in batches:
                steps.zero_grad()
                loss_of_state(_state(stacked, free, function), batch).backward()
                steps.step()
            schedule.step()
    with torch.no_grad():
        share, shrink = weights(free[:-1], free[-1], function)
        return Learned(_state(stacked, free, function), shrink, share)


def _start(count: Tensor, function: str) -> Tensor:
    """The free numbers of the clients, and behind them that of the factor."""
    if function == "exp":
        return torch.cat([(count / count.sum()).log(), count.new_zeros(1)])
    return torch.cat([torch.full_like(count, len(count) ** -0.5), count.new_ones(1)])


def _optimizer(free: Tensor, name: str, lr: float) -> torch.optim.Optimizer:
    if check.choice(NAME, "optimizer", name, OPTIMIZERS) == "adam":
        return torch.optim.Adam([free], lr=lr, betas=(0.5, 0.999))
    return torch.optim.SGD([free], lr=lr, momentum=0.9)


def _state(stacked: Mapping[str, Tensor], free: Tensor, function: str) -> dict[str, Tensor]:
    values = aggregate(list(stacked.values()), *weights(free[:-1], free[-1], function))
    return {name: value.to(stacked[name].dtype) for name, value in zip(stacked, values, strict=True)}
