"""A server's round: clients' states that cannot be used are refused by name, the others are put together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.federated import _states, fedlaw
from normkit.federated.classwise_average import classwise_average
from normkit.federated.fedlabel_aggregate import fedlabel_aggregate
from normkit.federated.fedselect_aggregate import fedselect_aggregate

State = Mapping[str, Tensor]
MASK = "mask"  # the role of 1 for what is a client's own, and 0 for what is shared


class Update(NamedTuple):
    """What a client sends: its state, how many samples it was trained on, and what its method asks for besides.

    more: further states by role, such as masks; numbers: what is no state, such as how many samples each class has.
    """

    state: State
    samples: float
    more: Mapping[str, State] = {}
    numbers: Mapping[str, Any] = {}


def screened(updates: Mapping[Any, Update], sent: State, most: float, plan: Plan | None = None) -> dict[Any, str]:
    """Tell which clients are refused, and why: by names, shapes, numbers that are not finite, and distance.

    So are those that lack what the method's ``plan`` wants besides the state. A state may be ``most`` times as far from
    what was sent as the median client's is; where that is 0, or there is one client, as far as what was sent is from 0.

    >>> sent = {"w": torch.zeros(2)}
    >>> screened({"a": Update({"w": torch.ones(2)}, 3), "b": Update({"w": torch.ones(3)}, 3)}, sent, 1e3)
    {'b': 'w has shape (3,), but (2,) was sent'}
    """
    refused = {client: why for client, update in updates.items() if (why := _unusable(update, sent))}
    if plan is not None:
        there = {client: update for client, update in updates.items() if client not in refused}
        refused |= {client: why for client, update in there.items() if (why := _lacking(update, sent, plan))}
        refused |= _of_other_lengths({client: u for client, u in there.items() if client not in refused}, plan)
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


def _lacking(update: Update, sent: State, plan: Plan) -> str | None:
    """Say what a client should have sent besides its state; only names of entries that were sent are known."""
    for role in plan.more:
        if role not in update.more:
            return f"it sends no {role}"
        for name, value in update.more[role].items():
            if name not in sent or value.shape != sent[name].shape or value.is_complex():
                return f"{role} {name} is no entry that was sent, or of another shape"
            if not value.isfinite().all():
                return f"{role} {name} has NaN or infinities"
            if role == MASK and not ((value == 0) | (value == 1)).all():
                return f"{role} {name} has other numbers than 0 and 1"
    for name in plan.numbers:
        found = update.numbers.get(name)
        given = found if isinstance(found, list) else [found]
        if not given or not all(isinstance(value, int | float) and 0 <= value < float("inf") for value in given):
            return f"its {name} is {found}, not of numbers from 0"
    return None


def _of_other_lengths(updates: Mapping[Any, Update], plan: Plan) -> dict[Any, str]:
    """Refuse clients whose lists of numbers are not as long as most."""
    refused: dict[Any, str] = {}
    for name in plan.numbers:
        lengths = {client: len(u.numbers[name]) for client, u in updates.items() if isinstance(u.numbers[name], list)}
        usual = statistics.mode(sorted(lengths.values())) if lengths else 0
        refused |= {k: f"its {name} has {n} numbers, not {usual}" for k, n in lengths.items() if n != usual}
        if lengths:
            refused |= {k: f"its {name} is a number, not a list" for k in updates if k not in lengths}
    return refused


def _distance(state: State, other: State) -> float:
    """The length of the difference over all entries of real numbers; what the other lacks counts as 0."""
    real = {name: value.double() for name, value in state.items() if value.is_floating_point()}
    squares = [
        (value - other[name].double() if name in other else value).square().sum() for name, value in real.items()
    ]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def average(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """Average by sample counts, in float64; whole numbers are rounded, and the order of the clients changes nothing."""
    states = [update.state for update in updates]
    _states.alike("average", states)
    counts = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    return {
        name: _states.averaged([state[name] for state in states], counts).to(sent[name].dtype) for name in states[0]
    }


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


def labelled_and_not(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """FedLabel: states learned from labels, all alike, and from pseudo-labels, by their number; then both."""
    names = tuple(sent)
    branches = [_states.stack([update.state for update in updates])]
    branches.append(_states.stack([{**update.state, **update.more["pseudo"]} for update in updates]))
    number = torch.tensor([float(update.numbers["pseudo-labels"]) for update in updates], dtype=torch.float64)
    values = [branch[name] for branch in branches for name in names]
    return dict(zip(names, fedlabel_aggregate(*values, number, entries=names), strict=True))


def by_class(updates: Sequence[Update], sent: State, *, classifier: Collection[str]) -> dict[str, Tensor]:
    """FedLoGe: rows of the classifier by each client's share of the class, what else there is by samples."""
    found = average(updates, sent)
    count = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    classes = torch.tensor([update.numbers["classes"] for update in updates], dtype=torch.float64)
    for name in classifier:
        value = torch.stack([update.state[name] for update in updates])
        rows = value if value.dim() > 2 else value.reshape(*value.shape[:2], -1)
        [joined] = classwise_average(rows, count, classes, entries=(name,))
        found[name] = joined.reshape(sent[name].shape)
    return found


def where_shared(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """FedSelect: each number over the clients to which it is shared; where nobody shares it stays as it was sent."""
    names = tuple(sent)
    masked = tuple(name for name in names if all(name in update.more[MASK] for update in updates))
    stacked = _states.stack([update.state for update in updates])
    masks = [torch.stack([update.more[MASK][name] for update in updates]) for name in masked]
    values = [stacked[name] for name in names]
    found = fedselect_aggregate(*values, *masks, entries=names, masked=masked)[: len(masked)]
    alone = {name: (mask != 0).all(0) for name, mask in zip(masked, masks, strict=True)}
    shared = {name: torch.where(alone[name], sent[name], v) for name, v in zip(masked, found, strict=True)}
    return {**sent, **shared}


class Plan(NamedTuple):
    """What a method declares.

    keeps: whether entries of the state stay with each client; combine: how the others are put together.
    needs: what the server must give it; takes: its options.
    more, numbers: what each client sends besides its state: further states by role, and numbers by name.
    """

    keeps: bool
    combine: Callable[..., dict[str, Tensor]]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


PLANS = {
    "average": Plan(False, average),
    "fedbn": Plan(True, average),
    "fedrap": Plan(True, average),
    "apfl": Plan(False, average),
    "fedlabel": Plan(False, labelled_and_not, more=("pseudo",), numbers=("pseudo-labels",)),
    "fedloge": Plan(False, by_class, ("classifier",), numbers=("classes",)),
    "fedselect": Plan(False, where_shared, more=(MASK,)),
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
