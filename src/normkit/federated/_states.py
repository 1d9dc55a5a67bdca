"""What functions on clients' states share: reading them, and weighted means in which no client comes first."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.ops.derivatives import are_constants
from normkit.ops.sums import BLOCK, in_type, weigh

SEEN = 64  # numbers of a client by which its place in a sum is told


def read(
    owner: str,
    states: Sequence[Tensor],
    roles: Mapping[str, Sequence[str]],
    rest: Sequence[str] = (),
    clients: bool = True,
) -> tuple[dict[str, list[Tensor]], list[Tensor]]:
    """Sort what was handed in: for each role one tensor an entry, in their order, then the rest by name.

    All must be finite; with ``clients`` they count on the first axis, and are as many everywhere. A role that has an
    entry of another's name has its shape too.
    """
    for entries in roles.values():
        check.names(owner, "entries", entries)
    names = [(role, entry) for role, entries in roles.items() for entry in entries]
    if len(states) != len(names) + len(rest):
        expected = [f"{role}:{entry}" if role else entry for role, entry in names] + list(rest)
        raise ValueError(f"{owner}: states must be {', '.join(expected)}, but there are {len(states)} tensors")
    shapes: dict[str, torch.Size] = {}
    tensors: dict[str, list[Tensor]] = {role: [] for role in roles}
    for (role, entry), value in zip(names, states, strict=False):
        _check(owner, f"states {role}:{entry}" if role else f"states {entry}", value, clients, states[0])
        if shapes.setdefault(entry, value.shape) != value.shape:
            raise ValueError(
                f"{owner}: states {role}:{entry} must have shape {tuple(shapes[entry])} as the others of its name, not "
                f"{tuple(value.shape)}"
            )
        tensors[role].append(value)
    others = list(states[len(names) :])
    for name, value in zip(rest, others, strict=True):
        _check(owner, f"states {name}", value, False, states[0])
    return tensors, others


def _check(owner: str, name: str, value: Tensor, clients: bool, first: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{owner}: {name} must be a tensor, not {type(value).__name__}")
    check.dense(owner, value, name)
    if value.is_complex():
        raise TypeError(f"{owner}: {name} must be of real numbers, not {value.dtype}")
    if clients and (value.dim() < 1 or len(value) != len(first) or not len(value)):
        raise ValueError(
            f"{owner}: {name} must have an axis of clients in front, but its shape is {tuple(value.shape)}"
        )
    finite(owner, name, value)


def finite(owner: str, name: str, value: Tensor) -> None:
    """Require numbers without NaN and infinities."""
    if not value.is_meta and not value.isfinite().all():
        raise ValueError(f"{owner}: {name} has NaN or infinities")


def counts(owner: str, name: str, value: Tensor, clients: int) -> Tensor:
    """Return what each client counts, in float64; not below 0, and not all of it 0."""
    check.shape(owner, f"states {name}", value, (clients,))
    if (value < 0).any() or not value.sum() > 0:
        raise ValueError(f"{owner}: states {name} must not be below 0, nor 0 for all clients, but is {value.tolist()}")
    return value.double()


def where_counted(values: Tensor, count: Tensor) -> Tensor:
    """Put zeros where the count, one on the first axis, is 0: the mean of no samples is NaN in most programs."""
    return values.masked_fill((count == 0).reshape(-1, *(1,) * (values.dim() - 1)), 0)


def total(values: Tensor) -> Tensor:
    """Sum over the clients on the first axis in float64, so that their order does not change a bit."""
    return by_numbers(values.double()).sum(0)


def by_numbers(values: Tensor) -> Tensor:
    """Put the clients on the first axis into an order that their numbers alone decide."""
    rows = _rows(values.detach())
    order = _order([[row] for row in rows], rows[:, :SEEN].tolist())
    return values.index_select(0, torch.tensor(order, device=values.device))


def mean(values: Tensor, weights: Tensor) -> Tensor:
    """Average over the clients in float64, ``weights`` (K,) or one a number; one client alone is what it was."""
    weights = weights.double()
    if weights.dim() == 1:
        return weighted(values, weights / total(weights))
    weights = weights.reshape(weights.shape + (1,) * (values.dim() - weights.dim()))
    return total(values.double() * (weights / total(weights)))


def join(values: Tensor, weights: Tensor) -> Tensor:
    """Average over the clients on the first axis, ``weights`` (K,), in the states' own type."""
    if are_constants(values, weights):
        return average(values.unbind(0), weights)
    return in_type(mean(values, weights), values)


def average(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Average one entry of the clients' states, in its own type; one client alone is what it was.

    The same number as :func:`mean` and :func:`typed` give, without a gradient; memory is gone through once.
    """
    shares = weights.double() / total(weights.double())
    each, order = shares.tolist(), places([[value] for value in values], shares)
    return weigh([values[k] for k in order], [each[k] for k in order], values[0])[0]


def weighted(values: Tensor, shares: Tensor) -> Tensor:
    """Add up shares (K,) of states; without a gradient one after the other, and nothing of the size of all is made."""
    if not are_constants(values, shares):
        return total(values.double() * shares.double().reshape(-1, *(1,) * (values.dim() - 1)))
    summed = torch.zeros(values.shape[1:], dtype=torch.float64, device=values.device)
    for k in places([[value] for value in values], shares):
        summed.add_(values[k], alpha=float(shares[k]))
    return summed


def places(states: Sequence[Sequence[Tensor]], shares: Tensor) -> list[int]:
    """An order of clients, each of some tensors, that what each counts and its numbers alone decide."""
    rows = [[value.detach().reshape(-1) for value in state] for state in states]
    keys = [[share, *(row[0][:SEEN].tolist() if row else ())] for share, row in zip(shares.tolist(), rows, strict=True)]
    return _order(rows, keys)


def _order(rows: Sequence[Sequence[Tensor]], keys: Sequence[list[float]]) -> list[int]:
    """Order clients by their keys, and where these are equal by the first of their numbers that differ."""
    if len({tuple(key) for key in keys}) == len(keys):
        return sorted(range(len(keys)), key=keys.__getitem__)

    def compare(one: int, other: int) -> int:
        if keys[one] != keys[other]:
            return -1 if keys[one] < keys[other] else 1
        pairs = list(zip(rows[one], rows[other], strict=True))
        for begin, end in ((0, SEEN), (SEEN, None)):  # the beginnings of all, which mostly tell, and then the rest
            for x, y in pairs:
                if sign := _compare(x[begin:end], y[begin:end]):
                    return sign
        return 0

    return sorted(range(len(keys)), key=functools.cmp_to_key(compare))


def _compare(one: Tensor, other: Tensor) -> int:
    """Tell by the first numbers that differ which of two comes first: -1, 1, or 0 where all are equal."""
    for x, y in zip(one.split(BLOCK), other.split(BLOCK), strict=True):
        differ = x != y
        if differ.any():
            at = int(differ.byte().argmax())
            return -1 if x[at] < y[at] else 1
    return 0


def _rows(values: Tensor) -> Tensor:
    """A row a client."""
    return values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)


def stack(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack clients' states, one tensor (K, ...) an entry, as the functions of this room take them.

    Names and shapes must be the same everywhere.

    >>> found = stack([{"w": torch.zeros(2)}, {"w": torch.ones(2)}])
    >>> {name: tuple(value.shape) for name, value in found.items()}
    {'w': (2, 2)}
    """
    alike("stack", states)
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def alike(owner: str, states: Sequence[Mapping[str, Tensor]]) -> None:
    """Require one client or more, and the same names and shapes everywhere."""
    if not states:
        raise ValueError(f"{owner}: states must hold one client or more")
    first = states[0]
    for k, state in enumerate(states):
        strange = sorted(set(first) ^ set(state)) or [n for n in first if first[n].shape != state[n].shape]
        if strange:
            raise ValueError(f"{owner}: the states of clients 0 and {k} differ in {', '.join(strange)}")
