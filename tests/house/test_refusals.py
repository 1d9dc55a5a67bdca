"""Which numbers each option of each method refuses: a bound that is another by mistake is seen.

Of each value that is tried a letter is written down: ``r`` where it is refused at once, ``c`` where it is in a call,
``.`` where it is taken. `python -m tests.house.test_refusals` writes them down again.
"""

import json
import math
import pathlib
import re

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.kinds import FITTED, FUNCTION, OPTIMIZER
from normkit.kinds.kind import example
from normkit.kinds.module import ModuleKind

RECORD = pathlib.Path(__file__).with_name("refusals.json")
KNOWN = json.loads(RECORD.read_text()) if RECORD.exists() else {}
KINDS = (FITTED, FUNCTION, OPTIMIZER)
METHODS = subject.methods(lambda kind: isinstance(kind, ModuleKind) or kind in KINDS)
FLOATS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, math.inf)
INTEGERS = (-1, 0, 1, 2, 3, 4)


def refusals(name):
    """The letters of each option that takes numbers."""
    card = nk.card(name)
    usual = example(card, 8)
    found = {}
    for option, parameter in card.signature.parameters.items():
        value, types = usual.get(option, parameter.default), str(parameter.annotation)
        asked = value is None or value is parameter.empty
        if isinstance(value, float) or (asked and "float" in types):
            found[option] = "".join(letter(card, {option: tried}) for tried in FLOATS)
        elif (isinstance(value, int) and not isinstance(value, bool)) or (asked and "int" in types):
            found[option] = "".join(letter(card, {option: tried}) for tried in INTEGERS)
    return found


def letter(card, option):
    torch.manual_seed(0)
    try:
        made = card.kind.small(card, 8, **option)
    except (TypeError, ValueError) as error:
        named = any(re.match(rf"(?!{known}:).*\b{known}\b", str(error)) for known in card.signature.parameters)
        return "r" if named else "unnamed"
    try:
        if card.kind is OPTIMIZER:
            for p in made.param_groups[0]["params"]:
                p.grad = torch.ones_like(p)
            made.step()
        elif setter := card.kind is FITTED and card.kind.setter(card.entry):
            getattr(made, setter)(*card.draw(8))
        else:
            made(*card.draw(8))
    except (TypeError, ValueError) as error:
        return "c" if re.match(r"[\w-]+: ", str(error)) else "unnamed"
    return "."


@pytest.mark.parametrize("name", METHODS)
def test_what_is_written_down_is_refused_and_no_more(name):
    assert refusals(name) == KNOWN[name], "look at it, then run `python -m tests.house.test_refusals`"


def test_nothing_else_is_written_down():
    assert KNOWN.keys() == set(METHODS)


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(refusals(name))}" for name in METHODS]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
