"""A ladder: the same comparison at several lengths or sizes, each rung a comparison of its own within one plan.

A rung is a multiple of what the settings say; rung 1 is the comparison without a ladder, whose runs it shares. Of a
ladder of data, a rung is a share of the training data, and 1 is all of them.

>>> from normkit.lab.plan.settings import Settings
>>> at(Settings(model="decoder:depth=2", ladder=(1, 2), ladder_of="width"), 2).model
'decoder:depth=2,dim=128'
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from normkit.choice import parsed
from normkit.lab.plan import builtin
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.settings import LADDERS, Settings, paces, spell
from normkit.lab.plan.variants import Variant

FEWEST = 2
STEPS, WIDTH, DEPTH, DATA = LADDERS


def rungs(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the rungs of settings, the only one where there is no ladder.

    >>> rungs({"ladder": [1, 2, 4]}), rungs({})
    ((1, 2, 4), (1.0,))
    """
    return tuple(settings.get("ladder") or (1.0,))


def changes(settings: Mapping[str, Any], rung: float) -> dict[str, Any]:
    """Return the settings that are others at a rung."""
    of = settings.get("ladder_of", STEPS)
    if rung == 1:
        return {}
    if of == DATA:
        return {"share": rung}
    if of in (WIDTH, DEPTH):
        return {"model": scale_model(settings["model"], of, rung)}
    steps, seconds = settings.get("steps"), settings.get("seconds")
    if steps is None:
        return {} if seconds is None else {"seconds": seconds * rung}
    longer = whole(steps * rung, f"{steps} steps")
    return {"steps": longer, **paces(longer)}


def at(settings: Settings, rung: float) -> Settings:
    """Return the settings of a rung, which have no ladder."""
    return dataclasses.replace(settings, ladder=None, **changes(vars(settings), rung))


def plan_at(plan: Plan, rung: float) -> Plan:
    """Return the comparison at a rung; steps that a variant has of its own are as many times more."""
    longer = rung if plan.settings.ladder_of == STEPS else 1
    variants = tuple(_longer(variant, longer) for variant in plan.variants)
    return Plan(at(plan.settings, rung), variants, plan.baseline, rung)


def plans(plan: Plan) -> list[Plan]:
    """Return the comparisons of all rungs, from the lowest; the plan itself where there is no ladder."""
    return [plan_at(plan, rung) for rung in plan.settings.ladder] if plan.settings.ladder else [plan]


def top(plan: Plan) -> Plan:
    """Return the comparison of the highest rung."""
    return plans(plan)[-1]


def _longer(variant: Variant, times: float) -> Variant:
    if variant.steps is None or times == 1:
        return variant
    return dataclasses.replace(variant, steps=whole(variant.steps * times, f"{variant.steps} steps of {variant.name}"))


def whole(value: float, what: str) -> int:
    """Return a size as a whole number, which it must be."""
    if value != round(value) or value < 1:
        raise ValueError(f"{spell('ladder')}: a rung makes {what} {value:g}, which is no whole number of at least 1")
    return round(value)


def scale_model(model: str, of: str, rung: float) -> str:
    """Return a built-in model's name with a width or depth so many times as large.

    >>> scale_model("flow:depth=3", "width", 2), scale_model("resnet", "depth", 3)
    ('flow:depth=3,hidden=128', 'resnet:depth=3')
    """
    if (row := builtin.row(model)) is None:
        raise ValueError(
            f"{spell('ladder_of')} {of}: only built-in models have one that can be set, not {model!r}; {way_out()}"
        )
    name, arguments = parsed(model)
    argument = row.width if of == WIDTH else "depth"
    size = {**row.sizes, **arguments}.get(argument)
    if not isinstance(size, int):
        raise ValueError(
            f"{spell('ladder_of')} {of}: give {name!r} a {argument} of its own, such as {name}:{argument}=4; "
            f"{way_out()}"
        )
    arguments[argument] = whole(size * rung, f"{argument}={size}")
    return f"{name}:{','.join(f'{key}={value}' for key, value in arguments.items())}"


def way_out() -> str:
    """Say what can grow with any model."""
    return f"or take {spell('ladder_of')} {STEPS}"


def require_ladder(settings: Settings) -> Settings:
    """Return the settings with a ladder that can be climbed; of data, with the shares that the rungs are."""
    if settings.ladder is None:
        return settings
    require(settings)
    ladder = tuple(map(float, settings.ladder))
    if settings.ladder_of == DATA:
        ladder = tuple(float(f"{rung / ladder[-1]:.6g}") for rung in ladder)
    for rung in ladder:
        changes(vars(settings), rung)
    return dataclasses.replace(settings, ladder=ladder)


def require(settings: Settings) -> None:
    """Refuse a ladder that does not grow, or of what these settings do not have."""
    ladder, of, name = tuple(map(float, settings.ladder or ())), settings.ladder_of, spell("ladder")
    if len(ladder) < FEWEST:
        raise ValueError(f"{name} must have at least {FEWEST} rungs, such as 1,2,4, not {write_rungs(ladder)} alone")
    for lower, higher in itertools.pairwise(ladder):
        if higher <= lower:
            raise ValueError(f"{name} must grow from rung to rung, but {higher:g} follows {lower:g}")
    if settings.train and of != STEPS:
        raise ValueError(
            f"{spell('ladder_of')} {of}: a training loop of your own makes its model and data itself; {way_out()}"
        )
    if settings.steps is None and settings.seconds is None and of == STEPS:
        raise ValueError(f"{name} multiplies {spell('steps')} or {spell('seconds')}: give one of them")
    if of == DATA and settings.federated:
        raise ValueError(f"{spell('ladder_of')} {DATA} and {spell('federated')} exclude each other")


def contains(here: Mapping[str, Any], saved: Mapping[str, Any]) -> bool:
    """Whether the ladder of the settings here has all rungs of that there, which may be none but the first."""
    alike = not saved.get("ladder") or saved["ladder_of"] == here["ladder_of"]
    return alike and set(rungs(saved)) <= set(rungs(here))


def write_rungs(ladder: Sequence[float]) -> str:
    """Write rungs as they are typed.

    >>> write_rungs((1.0, 2.0, 0.5))
    '1,2,0.5'
    """
    return ",".join(f"{rung:g}" for rung in ladder)


def beyond(ladder: Sequence[float]) -> tuple[float, float]:
    """Return the next two rungs, which grow as the last one did.

    >>> beyond((1, 2, 4))
    (8.0, 16.0)
    """
    ratio = ladder[-1] / ladder[-2]
    return ladder[-1] * ratio, ladder[-1] * ratio**2


def name_rung(settings: Mapping[str, Any], rung: float) -> str:
    """Say what a rung is.

    >>> name_rung({"ladder_of": "steps", "steps": 160}, 2), name_rung({"ladder_of": "data"}, 0.25)
    ('320 steps', '25% of the data')
    """
    of = settings.get("ladder_of", STEPS)
    if of == DATA:
        return f"{100 * rung:g}% of the data"
    if of in (WIDTH, DEPTH):
        row, (_, arguments) = builtin.row(settings["model"]), parsed(settings["model"])
        argument = row.width if row and of == WIDTH else "depth"
        return f"{argument} {({**row.sizes, **arguments}[argument] if row else 1) * rung:g}"
    if settings.get("steps") is None:
        return f"{(settings.get('seconds') or 0) * rung:g} s"
    return f"{settings['steps'] * rung:g} {'rounds' if settings.get('federated') else 'steps'}"
