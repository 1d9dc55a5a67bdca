"""A server's round: what clients send, which of them are refused and why, and what a method declares of all this."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit.federated import _states

State = Mapping[str, Tensor]
PSEUDO = "pseudo"  # the role of a second state
MASK = "mask"  # the role of 1 for what is a client's own, and 0 for what is shared


class Update(NamedTuple):
    """What a client sends: its state, how many samples it was trained on, and what its method asks for besides.

    more: further records by role, such as masks; numbers: what is no tensor, such as how many samples each class has.
    client: who it is, for servers that remember it.
    """

    state: State
    samples: float
    more: Mapping[str, State] = {}
    numbers: Mapping[str, Any] = {}
    client: Any = None


class Wanted(NamedTuple):
    """What each client sends besides its state.

    more: records whose entries are among the state's; records: those with names of their own, the same for all clients.
    numbers: from 0, or lists of them; signed: of any sign.
    sound: says what else is wrong with an update, if anything is, by the server's memory and the method's options.
    """

    more: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    signed: tuple[str, ...] = ()
    sound: Callable[..., str | None] = lambda update, memory, **options: None


def screened(
    updates: Mapping[Any, Update],
    sent: State,
    most: float,
    wanted: Wanted | None = None,
    memory: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[Any, str]:
    """Tell which clients are refused, and why: by names, shapes, numbers that are not finite, and distance.

    So are those that lack what is ``wanted`` besides the state. A state may be ``most`` times as far from what was sent
    as the median client's is; where that is 0, or there is one client, as far as what was sent is from 0. A record of
    numbers may be so many times as long as the median client's.

    >>> sent = {"w": torch.zeros(2)}
    >>> screened({"a": Update({"w": torch.ones(2)}, 3), "b": Update({"w": torch.ones(3)}, 3)}, sent, 1e3)
    {'b': 'w has shape (3,), but (2,) was sent'}
    """
    refused = {client: why for client, update in updates.items() if (why := _unusable(update, sent))}
    if wanted is not None:
        left = {client: update for client, update in updates.items() if client not in refused}
        refused |= {client: why for client, update in left.items() if (why := _lacking(update, sent, wanted))}
        left = {client: update for client, update in left.items() if client not in refused}
        refused |= _unlike_most(left, wanted)
        left = {client: update for client, update in left.items() if client not in refused}
        refused |= {
            client: why
            for client, update in left.items()
            if (why := wanted.sound(update, memory or {}, **(options or {})))
        }
    for role in (None, *({*wanted.more, *wanted.records} - {MASK} if wanted else ())):
        left = {client: update for client, update in updates.items() if client not in refused}
        refused |= _far(left, sent, most, role)
    return refused


def _far(updates: Mapping[Any, Update], sent: State, most: float, role: str | None) -> dict[Any, str]:
    """Refuse clients whose states, or whose records of a role, are much further away than the median one's."""
    start = sent if role in (None, PSEUDO) else {}
    far = {k: _distance(u.state if role is None else u.more[role], start) for k, u in updates.items()}
    ranked = sorted(far.values())
    usual = ranked[(len(ranked) - 1) // 2] if len(ranked) > 1 else 0.0
    if start is not sent and not usual:  # nothing tells what is far from 0
        return {}
    bound = most * (usual or _distance(sent, {}) or 1.0)
    what, whence = "it" if role is None else f"its {role}", "what was sent" if start is sent else "0"
    return {
        client: f"{what} is {distance:.3g} from {whence}, and at most {bound:.3g} is taken"
        for client, distance in far.items()
        if not distance <= bound
    }


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


def _lacking(update: Update, sent: State, wanted: Wanted) -> str | None:
    """Say what a client should have sent besides its state."""
    for role in (*wanted.more, *wanted.records):
        if role not in update.more:
            return f"it sends no {role}"
        for name, value in update.more[role].items():
            if role in wanted.more and (name not in sent or value.shape != sent[name].shape):
                return f"{role} {name} is no entry that was sent, or of another shape"
            if value.is_complex():
                return f"{role} {name} is of {value.dtype}"
            if not value.isfinite().all():
                return f"{role} {name} has NaN or infinities"
            if role == MASK and not ((value == 0) | (value == 1)).all():
                return f"{role} {name} has other numbers than 0 and 1"
    for name in (*wanted.numbers, *wanted.signed):
        found = update.numbers.get(name)
        given = found if isinstance(found, list) else [found]
        least = 0 if name in wanted.numbers else -math.inf
        if not all(isinstance(value, int | float) and least <= value and math.isfinite(value) for value in given):
            return f"its {name} is {found}, not of {'numbers from 0' if name in wanted.numbers else 'finite numbers'}"
    return None


def _unlike_most(updates: Mapping[Any, Update], wanted: Wanted) -> dict[Any, str]:
    """Refuse clients whose lists of numbers are not as long, or whose records not as shaped, as most are."""
    refused: dict[Any, str] = {}
    for name in wanted.numbers:
        lengths = {client: len(u.numbers[name]) for client, u in updates.items() if isinstance(u.numbers[name], list)}
        usual = statistics.mode(sorted(lengths.values())) if lengths else 0
        refused |= {k: f"its {name} has {n} numbers, not {usual}" for k, n in lengths.items() if n != usual}
        if lengths:
            refused |= {k: f"its {name} is a number, not a list" for k in updates if k not in lengths}
    for role in wanted.records:
        shapes = {k: {name: tuple(v.shape) for name, v in sorted(u.more[role].items())} for k, u in updates.items()}
        most = statistics.mode(sorted(map(str, shapes.values()))) if shapes else ""
        refused |= {k: f"its {role} is {of}, not {most}" for k, of in shapes.items() if str(of) != most}
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


def alike(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """Average the clients alike, however many samples each has."""
    return average([update._replace(samples=1) for update in updates], sent)


class Told(NamedTuple):
    """What a server tells a client besides the state: records of tensors, and numbers or lists of them."""

    records: Mapping[str, State] = {}
    numbers: Mapping[str, Any] = {}


class Ask(NamedTuple):
    """A question to all clients before the first round.

    told: what goes down with it, of the server's memory and the method's options; wanted: what comes back.
    take: puts the answers into the memory.
    """

    name: str
    wanted: Wanted
    take: Callable[..., None]
    told: Callable[..., Told] = lambda memory, **options: Told()


class Plan(NamedTuple):
    """What a method declares.

    combine: how the clients' states are put together; parts: the methods of the catalogue that it is made of.
    keeps: whether entries of the state stay with each client; wanted: what each sends besides the state.
    needs: what the server must give it; takes: its options.
    remembers: whether ``combine`` takes the server's memory: a dict that lasts from round to round.
    told: what a client is told besides the state, of the memory, the client and the options.
    asks: questions before the first round; begun: the state to begin with, of the one given, memory and options.
    """

    combine: Callable[..., dict[str, Tensor]]
    parts: tuple[str, ...] = ()
    keeps: bool = False
    wanted: Wanted = Wanted()
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    remembers: bool = False
    told: Callable[..., Told] | None = None
    asks: tuple[Ask, ...] = ()
    begun: Callable[..., dict[str, Tensor]] | None = None

    def together(
        self, updates: Sequence[Update], sent: State, memory: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Put the clients' states together."""
        more = {"memory": memory} if self.remembers else {}
        return self.combine(updates, sent, **more, **options)
