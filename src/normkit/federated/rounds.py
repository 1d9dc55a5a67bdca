"""A server's round: clients' states that cannot be used are refused by name, the others are put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.federated import _states, fedlaw

State = Mapping[str, Tensor]


class Update(NamedTuple):
    """What a client sends: its state, and how many samples it was trained on."""

    state: State
    samples: float


def screened(updates: Mapping[Any, Update], sent: State, most: float) -> dict[Any, str]:
    """Tell which clients are refused, and why: by names, shapes, numbers that are not finite, and distance.

    A state may be ``most`` times as far from what was sent as the median client's is; where that is 0, or there is one
    client, as far as what was sent is from 0.

    >>> sent = {"w": torch.zeros(2)}
    >>> screened({"a": Update({"w": torch.ones(2)}, 3), "b": Update({"w": torch.ones(3)}, 3)}, sent, 1e3)
    {'b': 'w has shape (3,), but (2,) was sent'}
    """
    refused = {client: why for client, update in updates.items() if (why := _unusable(update, sent))}
    far = {client: _distance(update.state, sent) for client, update in updates.items() if client not in refused}
    ranked = sorted(far.values())
    usual = ranked[(len(ranked) - 1) // 2] if len(ranked) > 1 else 0.0
    bound = most * (usual or _distance(sent, {}) or 1.0)
    for client, distance in far.items():
        if not distance <= bound:
            refused[client] = f"it is {distance:.3g} from what was sent, and at most {bound:.3g} is taken"
    return refused


def _unusable(update: Update, sent: State) -> str | None:
    if not (isinstance(update.samples, int | float) and 0 < update.samples < float("inf")):
        return f"its number of examples is {update.samples}, not above 0"
    strange = sorted(set(update.state) ^ set(sent))
    if strange:
        return f"its entries differ from those sent in {', '.join(strange)}"
    for name, value in update.state.items():
        if value.shape != sent[name].shape:
            return f"{name} has shape {tuple(value.shape)}, but {tuple(sent[name].shape)} was sent"
        if value.is_complex() or value.is_floating_point() != sent[name].is_floating_point():
            return f"{name} is of {value.dtype}, but {sent[name].dtype} was sent"
        if not value.isfinite().all():
            return f"{name} has NaN or infinities"
    return None


def _distance(state: State, other: State) -> float:
    """The length of the difference over all entries of real numbers; what the other lacks counts as 0."""
    real = {name: value.double() for name, value in state.items() if value.is_floating_point()}
    squares = [
        (value - other[name].double() if name in other else value).square().sum() for name, value in real.items()
    ]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def average(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """Average by sample counts, in float64; whole numbers are rounded, and the order of the clients changes nothing."""
    stacked = _states.stack([update.state for update in updates])
    counts = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    return {name: _states.typed(_states.mean(value, counts), sent[name]) for name, value in stacked.items()}


def learned(
    updates: Sequence[Update],
    sent: State,
    *,
    loss: Callable[[State, Any], Tensor],
    batches: Iterable[Any],
    parameters: Collection[str],
    **options: Any,
) -> dict[str, Tensor]:
    """FedLAW: shares of the clients, and how far their sum shrinks, learned on the server's batches.

    What is not among the ``parameters`` is averaged.
    """
    together = average(updates, sent)

    def of_all(state: State, batch: Any) -> Tensor:
        return loss({**together, **state}, batch)

    own = [{name: update.state[name] for name in parameters} for update in updates]
    counts = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    found = fedlaw.learn(own, counts, of_all, batches, **options).state
    return {**together, **{name: value.to(sent[name].dtype) for name, value in found.items()}}


class Plan(NamedTuple):
    """What a method declares.

    keeps: whether entries of the state stay with each client; combine: how the others are put together.
    needs: what the server must give it; takes: its options.
    """

    keeps: bool
    combine: Callable[..., dict[str, Tensor]]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


PLANS = {
    "average": Plan(False, average),
    "fedbn": Plan(True, average),
    "fedlaw": Plan(False, learned, ("loss", "batches", "parameters"), ("function", "optimizer", "lr", "epochs")),
}


def plan(method: str, local: Collection[str], options: Mapping[str, Any]) -> Plan:
    """Return what a method declares, if it is given what it needs."""
    found = declared("strategy", "method", method, options)
    missing = [name for name in found.needs if name not in options]
    if missing:
        raise TypeError(f"strategy: method={method!r} needs {', '.join(missing)}")
    if found.keeps != bool(local):
        verb = "needs" if found.keeps else "takes no"
        raise ValueError(f"strategy: method={method!r} {verb} local entries; it is {list(local)}")
    return found


def declared(owner: str, name: str, method: str, options: Collection[str]) -> Plan:
    """Return what a method declares; options that it does not take are refused."""
    found = PLANS[check.choice(owner, name, method, tuple(PLANS))]
    unknown = sorted({*options} - {*found.needs, *found.takes})
    if unknown:
        raise TypeError(f"{owner}: {name}={method!r} does not take {', '.join(unknown)}")
    return found
