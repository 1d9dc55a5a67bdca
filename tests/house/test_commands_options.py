"""What every command takes, as it was written down: an option that is other by mistake is seen.

`python tests/house/test_commands_options.py` writes them down again.
"""

import argparse
import json
import pathlib

from normkit import cli

RECORD = pathlib.Path(__file__).with_name("options.json")
KNOWN = json.loads(RECORD.read_text()) if RECORD.exists() else {}
MANY = 20  # words to choose from, such as all methods


def commands(parser, name=""):
    """Every command that takes no other, by the words it is called with."""
    getattr(parser, "described", lambda: None)()
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        words = [parser.usage, parser.description, parser.epilog]
        return {name: {"": words, **dict(map(told, parser._actions))}}
    return {
        key: own
        for word, sub in inner[0].choices.items()
        for key, own in commands(sub, f"{name} {word}".strip()).items()
    }


def told(action):
    choices = None if action.choices is None or len(action.choices) > MANY else [str(one) for one in action.choices]
    kind = getattr(action.type, "__name__", None)
    values = (type(action).__name__, kind, action.nargs, action.const, action.default, choices, action.required)
    return " ".join(action.option_strings) or action.dest, [*map(plain, values)]


def plain(value):
    return value if isinstance(value, str | int | float | list | None) else str(value)


def test_commands_take_what_is_written_down():
    found = commands(cli.parser())
    assert found.keys() == KNOWN.keys()
    for name, options in found.items():
        assert options == KNOWN[name], f"{name}: run `python tests/house/test_commands_options.py`"


if __name__ == "__main__":
    lines = []
    for name, options in commands(cli.parser()).items():
        own = ",\n".join(f"  {json.dumps(option)}: {json.dumps(values)}" for option, values in options.items())
        lines.append(f"{json.dumps(name)}: {{\n{own}\n}}")
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
