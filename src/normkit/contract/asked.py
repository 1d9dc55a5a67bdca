"""What the contract is asked of: all there is, or what the environment variable ``NORMKIT_CHECK`` names.

A name is that of a method (``rmsnorm``, or ``my_package.my_norm`` of one that is not installed), of a flow or another
thing (``my-flow``, or ``flow:my-flow`` where a method has the name as well), or of an installed package: all that it
enters. Several stand between commas.
"""

import functools
import os
from importlib.metadata import EntryPoint, EntryPoints, entry_points

import torch

from normkit import catalog, families
from normkit.contract import VERSION

ASKED, NEWEST, WHERE = "NORMKIT_CHECK", "NORMKIT_CONTRACT", "NORMKIT_DEVICE"
METHOD = "method"
Thing = tuple[str, str]  # its kind, "method" of all methods, and its name


def names(kind: str) -> list[str]:
    """Return the names of a kind that the contract is asked of."""
    text = os.environ.get(ASKED)
    if not text:
        return catalog.methods() if kind == METHOD else list(families.family(kind))
    return [name for own, name in things(text) if own == kind]


def version() -> int:
    """Return the version of the contract that is asked for."""
    text = os.environ.get(NEWEST) or str(VERSION)
    if not text.isdecimal() or not 1 <= int(text) <= VERSION:
        raise ValueError(f"{NEWEST} must be a version of the contract from 1 to {VERSION}, not {text!r}")
    return int(text)


def device() -> torch.device:
    """Return the device that goldens are replayed on, and that methods are held to beside the processor."""
    text = os.environ.get(WHERE) or "cpu"
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"{WHERE} must be a device of this machine, not {text!r}: {error}".splitlines()[0]) from None
    return torch.device(text)


@functools.cache
def things(text: str) -> list[Thing]:
    """Return what a list of names stands for."""
    return [*dict.fromkeys(thing for word in text.split(",") for thing in named(word.strip()))]


def named(word: str) -> list[Thing]:
    """Return what a name stands for; the error names the nearest methods where that is nothing."""
    entered = of_package(word)
    if entered:
        return entered
    kind, _, name = word.partition(":")
    if kind in families.KINDS:
        if name not in families.family(kind):
            raise ValueError(f"no {kind} {name!r}; there are {', '.join(families.family(kind))}")
        return [(kind, name)]
    try:
        return [(METHOD, catalog.card(word).name)]
    except ValueError:
        matches = [(kind, word) for kind in families.KINDS if word in families.family(kind)]
        if not matches:
            raise
        return matches


def described(kind: str, name: str) -> Thing:
    """Return what one is, of a method its own kind, and what it is called."""
    return (catalog.card(name).kind.name, catalog.card(name).name) if kind == METHOD else (kind, name)


def of_package(word: str) -> list[Thing]:
    """Return all that an installed package enters; an entry point of it that fails, fails here."""
    package = word.replace("-", "_")
    for point in points(catalog.ENTRY_POINTS, package):
        point.load()
    entries = [(METHOD, card.name) for card in catalog.others() if card.module.partition(".")[0] == package]
    for kind in families.KINDS:
        for point in (point for group in families.groups(kind) for point in points(group, package)):
            if families.family(kind)[point.name] is not point.load():
                raise ValueError(f"no {kind} {point.name!r} of {word}: the name is taken")
            entries.append((kind, point.name))
    return entries


def points(group: str, package: str) -> list[EntryPoint]:
    """Return the entry points of a group that name a module of a package."""
    return [point for point in _entered(group) if point.module.partition(".")[0] == package]


@functools.cache
def _entered(group: str) -> EntryPoints:
    """All of a group: each look goes through all that is installed."""
    return entry_points(group=group)
