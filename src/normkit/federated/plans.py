"""What each federated method declares, by its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from normkit import check
from normkit.families import Family
from normkit.federated.rounds import Strategy
from normkit.federated.strategies.fedlaw import learned as learned

NAMES = {"parameters", "classifier"}  # options that are names of entries
PLANS = Family("strategy", "PLAN", "federated/strategies")


def plan(method: str, local: Collection[str], options: Mapping[str, Any]) -> Strategy:
    """Return what a method declares, if it is given what it needs."""
    declaration = declared("strategy", "method", method, options)
    missing = [name for name in declaration.needs if name not in options]
    if missing:
        raise TypeError(f"strategy: method={method!r} needs {', '.join(missing)}")
    for name, option in options.items():  # each round takes them anew
        check.repeatable("strategy", name, option)
        if name in NAMES:
            entries("strategy", name, option)
    if declaration.keeps != bool(local):
        verb = "needs" if declaration.keeps else "takes no"
        raise ValueError(f"strategy: method={method!r} {verb} local entries; it is {list(local)}")
    return declaration


def check_names(options: Mapping[str, Any], state: Collection[str]) -> None:
    """Refuse options that name what is no entry of the state, before a round has been trained for nothing."""
    for option in NAMES & options.keys():
        wrong = next((name for name in options[option] if name not in state), None)
        if wrong is not None:
            known = ", ".join(map(repr, list(state)[:3]))
            raise ValueError(f"strategy: {option} must be names of the state's entries, such as {known}, not {wrong!r}")


def entries(owner: str, name: str, names: Collection[str]) -> tuple[str, ...]:
    """Return names of entries; one string would be read letter by letter, and nothing would stay with a client."""
    if isinstance(names, str):
        raise TypeError(f"{owner}: {name} must be a list of names, [{names!r}], not {names!r}")
    return tuple(names)


def declared(owner: str, name: str, method: str, options: Collection[str]) -> Strategy:
    """Return what a method declares; options that it does not take are refused."""
    whole = [strategy for strategy, declaration in PLANS.items() if method in declaration.parts]
    if method not in PLANS and whole:
        raise ValueError(
            f"{owner}: {name}={method!r} is a part of {whole[0]!r}: take that for the server, and "
            f"nk.create({method!r}, ...) where clients train"
        )
    declaration = PLANS[check.choice(owner, name, method, tuple(PLANS))]
    unknown = sorted({*options} - {*declaration.needs, *declaration.takes})
    if unknown:
        raise TypeError(f"{owner}: {name}={method!r} does not take {', '.join(unknown)}")
    return declaration
