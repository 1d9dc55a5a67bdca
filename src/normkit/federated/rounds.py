"""A server's round: what clients send, which of them are refused and why, and what a method declares of all this."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit.federated import _states
from normkit.ops import sums

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


class Extras(NamedTuple):
    """What each client sends besides its state.

    more: records whose entries are among the state's; records: those with entries that are the same for all clients,
    and names of their own where it is not one of ``more`` too.
    numbers: from 0, or lists of them; signed: of any sign.
    sound: says what else is wrong with an update, if anything is, by the server's memory and the method's options.
    read: what an update is taken as, before anything is checked.
    """

    more: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    signed: tuple[str, ...] = ()
    sound: Callable[..., str | None] = lambda update, memory, **options: None
    read: Callable[[Update], Update] = lambda update: update


class UpdateList(list[Update]):
    """The updates that are taken, and their average by sample counts where it was made as they were looked through."""

    average: dict[str, Tensor] | None = None


def accept(
    updates: Mapping[Any, Update],
    sent: State,
    most: float,
    extras: Extras | None = None,
    memory: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[UpdateList, dict[Any, str]]:
    """Return the updates that are taken, and which clients are refused, and why.

    They are refused by names, shapes, numbers that are not finite, and distance, and where they lack ``extras`` besides
    the state. A state may be ``most`` times as far from what was sent as the median client's is; where that is 0, or
    there is one client, as far as what was sent is from 0. A record of numbers may be so many times as long as the
    median client's.

    Distances and the average of all come from one pass over the states: where nobody is refused it is what
    :func:`average` gives.

    >>> sent = {"w": torch.zeros(2)}
    >>> accept({"a": Update({"w": torch.ones(2)}, 3), "b": Update({"w": torch.ones(3)}, 3)}, sent, 1e3)[1]
    {'b': 'w has shape (3,), but (2,) was sent'}
    """
    if extras is not None:
        updates = {client: extras.read(update) for client, update in updates.items()}
    refused = {client: why for client, update in updates.items() if (why := _unusable(update, sent))}
    summed = {client: update for client, update in updates.items() if client not in refused}
    average_of_all, far = _average_and_distances(list(summed.values()), sent, measured=True)
    distances = dict(zip(summed, far, strict=True))
    infinite = {client: summed[client] for client, distance in distances.items() if not math.isfinite(distance)}
    refused |= {client: why for client, update in infinite.items() if (why := _not_finite(update))}
    if extras is not None:
        refused |= _unsound(_without(updates, refused), sent, extras, memory or {}, options or {})
    refused |= _far({client: distances[client] for client in _without(updates, refused)}, sent, most, None)
    if extras is not None:
        refused |= _far_records(_without(updates, refused), sent, most, extras)
    left = _without(updates, refused)
    usable = UpdateList(left.values())
    usable.average = average_of_all if left.keys() == summed.keys() else None
    return usable, refused


def _unsound(
    updates: Mapping[Any, Update], sent: State, extras: Extras, memory: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[Any, str]:
    """Refuse clients whose extras are missing, unlike those of most, or not what the method can take."""
    refused = {client: why for client, update in updates.items() if (why := _lacking(update, sent, extras))}
    refused |= _unlike_most(_without(updates, refused), extras)
    left = _without(updates, refused)
    return refused | {k: why for k, update in left.items() if (why := extras.sound(update, memory, **options))}


def _without(updates: Mapping[Any, Update], refused: Mapping[Any, str]) -> dict[Any, Update]:
    return {client: update for client, update in updates.items() if client not in refused}


def _far(far: Mapping[Any, float], sent: State, most: float, role: str | None) -> dict[Any, str]:
    """Refuse clients whose states, or whose records of a role, are much further away than the median one's."""
    ranked = sorted(far.values())
    usual = ranked[(len(ranked) - 1) // 2] if len(ranked) > 1 else 0.0
    near = role in (None, PSEUDO)
    if not near and not usual:  # nothing tells what is far from 0
        return {}
    bound = most * (usual or _distance(sent, {}) or 1.0)
    what, whence = "it" if role is None else f"its {role}", "what was sent" if near else "0"
    return {
        client: f"{what} is {distance:.3g} from {whence}, and at most {bound:.3g} is taken"
        for client, distance in far.items()
        if not distance <= bound
    }


def _far_records(updates: Mapping[Any, Update], sent: State, most: float, extras: Extras) -> dict[Any, str]:
    """Refuse clients by their records, one role after the other."""
    refused: dict[Any, str] = {}
    for role in {*extras.more, *extras.records} - {MASK}:
        start = sent if role == PSEUDO else {}
        far = {k: _distance(update.more[role], start) for k, update in _without(updates, refused).items()}
        refused |= _far(far, sent, most, role)
    return refused


def _unusable(update: Update, sent: State) -> str | None:
    if not (isinstance(update.samples, Real) and 0 < float(update.samples) < math.inf):
        return f"its number of examples is {update.samples}, not above 0"
    strange = sorted(set(update.state) ^ set(sent))
    if strange:
        return f"its entries differ from those sent in {', '.join(strange)}"
    for name, value in update.state.items():
        if value.shape != sent[name].shape:
            return f"{name} has shape {tuple(value.shape)}, but {tuple(sent[name].shape)} was sent"
        if value.is_complex() or value.is_floating_point() != sent[name].is_floating_point():
            return f"{name} is of {value.dtype}, but {sent[name].dtype} was sent"
    return None


def _not_finite(update: Update) -> str | None:
    """Say which entry has numbers that are not finite."""
    names = [name for name, value in update.state.items() if not value.isfinite().all()]
    return f"{names[0]} has NaN or infinities" if names else None


def _lacking(update: Update, sent: State, extras: Extras) -> str | None:
    """Say what a client should have sent besides its state."""
    return next(itertools.chain(_lacking_records(update, sent, extras), _lacking_numbers(update, extras)), None)


def _lacking_records(update: Update, sent: State, extras: Extras) -> Iterator[str]:
    for role in (*extras.more, *extras.records):
        if role not in update.more:
            yield f"it sends no {role}"
        for name, value in update.more.get(role, {}).items():
            if role in extras.more and (name not in sent or value.shape != sent[name].shape):
                yield f"{role} {name} is no entry that was sent, or of another shape"
            if why := _wrong_numbers(role, value):
                yield f"{role} {name} {why}"


def _lacking_numbers(update: Update, extras: Extras) -> Iterator[str]:
    for names, least, what in ((extras.numbers, 0, "numbers from 0"), (extras.signed, -math.inf, "finite numbers")):
        for name in names:
            number = update.numbers.get(name)
            values = number if isinstance(number, list) else [number]
            if not all(isinstance(value, Real) and least <= float(value) and math.isfinite(value) for value in values):
                yield f"its {name} is {number}, not of {what}"


def _wrong_numbers(role: str, value: Tensor) -> str:
    """Say what is wrong with the numbers of an entry; nothing if all are right."""
    if value.is_complex():
        return f"is of {value.dtype}"
    if not value.isfinite().all():
        return "has NaN or infinities"
    wrong = role == MASK and not ((value == 0) | (value == 1)).all()
    return "has other numbers than 0 and 1" if wrong else ""


def _unlike_most(updates: Mapping[Any, Update], extras: Extras) -> dict[Any, str]:
    """Refuse clients whose lists of numbers are not as long, or whose records not as shaped, as most are."""
    refused: dict[Any, str] = {}
    for name in extras.numbers:
        lengths = {client: len(u.numbers[name]) for client, u in updates.items() if isinstance(u.numbers[name], list)}
        usual = statistics.mode(sorted(lengths.values())) if lengths else 0
        refused |= {k: f"its {name} has {n} numbers, not {usual}" for k, n in lengths.items() if n != usual}
        if lengths:
            refused |= {k: f"its {name} is a number, not a list" for k in updates if k not in lengths}
    for role in extras.records:
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
    if isinstance(updates, UpdateList) and updates.average is not None:
        return dict(updates.average)
    _states.alike("average", [update.state for update in updates])
    return _average_and_distances(updates, sent)[0]


def _average_and_distances(
    updates: Sequence[Update], sent: State, measured: bool = False
) -> tuple[dict[str, Tensor], list]:
    """Average by sample counts and, if asked, tell each client's distance from what was sent over all real numbers."""
    if not updates:
        return {}, []
    counts = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    shares, names = counts / _states.total(counts), list(updates[0].state)
    order = _states.places([[update.state[name] for name in names] for update in updates], shares)
    means, squares, each = {}, torch.zeros(len(order), dtype=torch.float64), shares[order].tolist()
    for name in names:
        real = measured and sent[name].is_floating_point()
        means[name], far = sums.weigh([updates[k].state[name] for k in order], each, sent[name], real)
        if far is not None:
            squares[order] += far.to(squares.device)
    return means, squares.sqrt().tolist()


def alike(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """Average the clients alike, however many samples each has."""
    return average([update._replace(samples=1) for update in updates], sent)


class Instructions(NamedTuple):
    """What a server tells a client besides the state: records of tensors, and numbers or lists of them."""

    records: Mapping[str, State] = {}
    numbers: Mapping[str, Any] = {}


class Ask(NamedTuple):
    """A question to all clients before the first round.

    told: what goes down with it, of the server's memory and the method's options; wanted: what comes back.
    take: puts the answers into the memory.
    """

    name: str
    wanted: Extras
    take: Callable[..., None]
    told: Callable[..., Instructions] = lambda memory, **options: Instructions()


class Local(NamedTuple):
    """What a client of a method does beside its steps.

    push: what it adds to its gradients, of its weights, what was sent, the server's memory, what it keeps and the
    options; ended: what it keeps and what it sends besides, of the mean of its own gradients, what it kept and options.
    """

    push: Callable[..., dict[str, Tensor]]
    ended: Callable[..., tuple[dict[str, Tensor], dict[str, Mapping[str, Tensor]]]] | None = None


class Strategy(NamedTuple):
    """What a method declares.

    combine: how the clients' states are put together; parts: the methods of the catalogue that it is made of.
    keeps: whether entries of the state stay with each client; own: whether clients train in a way of their own,
    though they send a state alone; wanted: what each sends besides the state.
    needs: what the server must give it; takes: its options, of which ``clients`` is how many there are unless given.
    remembers: whether ``combine`` takes the server's memory: a dict that lasts from round to round.
    told: what a client gets besides the state, of the memory, the client and the options.
    asks: questions before the first round; begun: the state to begin with, of the one given, memory and options.
    local: what clients do beside their steps, where nothing else sets them apart.
    """

    combine: Callable[..., dict[str, Tensor]]
    parts: tuple[str, ...] = ()
    keeps: bool = False
    own: bool = False
    wanted: Extras = Extras()
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    remembers: bool = False
    told: Callable[..., Instructions] | None = None
    asks: tuple[Ask, ...] = ()
    begun: Callable[..., dict[str, Tensor]] | None = None
    local: Local | None = None

    def together(
        self, updates: Sequence[Update], sent: State, memory: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Put the clients' states together."""
        more = {"memory": memory} if self.remembers else {}
        return self.combine(updates, sent, **more, **options)


Plan = Strategy  # the name of before, by which packages make theirs
