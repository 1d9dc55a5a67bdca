"""What functions on clients' states share: reading them, and weighted means in which no client comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normkit import check

BLOCK = 2**16  # numbers that are summed at once
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
    names = [(role, entry) for role, entries in roles.items() for entry in entries]
    if len(states) != len(names) + len(rest):
        wanted = [f"{role}:{entry}" if role else entry for role, entry in names] + list(rest)
        raise ValueError(f"{owner}: states must be {', '.join(wanted)}, but there are {len(states)} tensors")
    shapes: dict[str, torch.Size] = {}
    found: dict[str, list[Tensor]] = {role: [] for role in roles}
    for (role, entry), value in zip(names, states, strict=False):
        _checked(owner, f"states {role}:{entry}" if role else f"states {entry}", value, clients, states[0])
        if shapes.setdefault(entry, value.shape) != value.shape:
            raise ValueError(
                f"{owner}: states {role}:{entry} must have shape {tuple(shapes[entry])} as the others of its name, not "
                f"{tuple(value.shape)}"
            )
        found[role].append(value)
    others = list(states[len(names) :])
    for name, value in zip(rest, others, strict=True):
        _checked(owner, f"states {name}", value, False, states[0])
    return found, others


def _checked(owner: str, name: str, value: Tensor, clients: bool, first: Tensor) -> None:
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


def total(values: Tensor) -> Tensor:
    """Sum over the clients on the first axis in float64, so that their order does not change a bit."""
    return by_numbers(values.double()).sum(0)


def by_numbers(values: Tensor) -> Tensor:
    """Put the clients on the first axis into an order that their numbers alone decide."""
    rows = _rows(values.detach())
    return values.index_select(0, _order(rows, rows[:, :SEEN].double()))


def mean(values: Tensor, weights: Tensor) -> Tensor:
    """Average over the clients in float64, ``weights`` (K,) or one a number; one client alone is what it was."""
    weights = weights.double()
    if weights.dim() == 1 and not (torch.is_grad_enabled() and (values.requires_grad or weights.requires_grad)):
        return _added(values, weights / total(weights))
    weights = weights.reshape(weights.shape + (1,) * (values.dim() - weights.dim()))
    return total(values.double() * (weights / total(weights)))


def averaged(values: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Average one entry of the clients' states, in its own type; one client alone is what it was.

    The same number as :func:`mean` and :func:`typed` give. Blocks are summed in float64 where a processor's cache holds
    them, so that memory is gone through once.
    """
    shares = weights.double() / total(weights.double())
    flat = [value.detach().reshape(-1) for value in values]
    out, order, each = torch.empty_like(flat[0]), _added_order(flat, shares), shares.tolist()
    block = torch.empty(min(BLOCK, len(out)), dtype=torch.float64, device=out.device)
    for at in range(0, len(out), BLOCK):
        part = block[: len(out) - at].zero_()
        for k in order:
            part.add_(flat[k][at : at + BLOCK], alpha=each[k])
        out[at : at + BLOCK] = typed(part, out)
    return out.reshape(values[0].shape)


def _added(values: Tensor, shares: Tensor) -> Tensor:
    """Add up shares of states one after the other: nothing of the size of all of them is made."""
    summed = torch.zeros(values.shape[1:], dtype=torch.float64, device=values.device)
    for k in _added_order(_rows(values), shares):
        summed.add_(values[k], alpha=float(shares[k]))
    return summed


def _added_order(rows: Sequence[Tensor] | Tensor, shares: Tensor) -> list[int]:
    first = torch.stack([row[:SEEN].double() for row in rows])
    return _order(rows, torch.cat([shares.unsqueeze(1).to(first), first], 1)).tolist()


def typed(value: Tensor, like: Tensor) -> Tensor:
    """Cast to the type of ``like``, rounded where that holds whole numbers."""
    return (value if like.is_floating_point() else value.round()).to(like.dtype)


def _order(rows: Sequence[Tensor] | Tensor, first: Tensor) -> Tensor:
    """An order of the clients that depends on their numbers alone: on the first of them, and where these are equal on
    their sums.
    """
    keys = [row.tolist() for row in first]
    if len({tuple(key) for key in keys}) < len(keys):
        ramp = torch.linspace(1, 2, len(rows[0]), dtype=torch.float64, device=first.device)
        keys = [
            [*key, float(row.double().sum()), float(row.double() @ ramp)] for key, row in zip(keys, rows, strict=True)
        ]
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__), device=first.device)


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
