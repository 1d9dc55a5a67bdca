"""The command line: ``normkit compare``, ``report``, ``list``, ``show``, ``check``, ``bench`` and ``doctor``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from normkit import catalog, doctor, reference
from normkit.catalog import Card
from normkit.lab import cli as lab
from normkit.optional import library

WIDTH = 100
CHECK = "Hold methods, your own too, to what every method of the catalogue keeps. It needs pytest."


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str):
        """Say what is wrong, and leave with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; ``words`` are what was typed after ``normkit``."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a method or model of the user's, as `python -m` would find it
    options = parser().parse_args(words)
    try:
        return options.run(options)
    except (ValueError, TypeError) as error:
        print(f"normkit {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser() -> Parser:
    """Describe all commands."""
    from normkit import bench

    top = Parser("normkit", description="Every normalization method of deep learning in one place.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list the methods", description="List the methods, one line each.")
    listing.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="a name or part of one, * fits all")
    add_place(listing)
    listing.add_argument("--json", action="store_true", help="print the cards as JSON")
    listing.set_defaults(run=run_list)
    showing = commands.add_parser("show", help="describe one method", description="Describe one method.")
    showing.add_argument("name", metavar="NAME", help="a name as 'normkit list' prints it")
    showing.add_argument("--json", action="store_true", help="print the description as JSON")
    showing.set_defaults(run=run_show)
    bench.add_arguments(commands.add_parser("bench", help="time methods on this machine", description=bench.__doc__))
    checking = commands.add_parser("check", help="hold methods to the contract", description=CHECK)
    checking.add_argument("names", nargs="+", metavar="NAME", help="a name, or my_package.my_norm for one of yours")
    checking.add_argument("-k", dest="only", metavar="WORDS", help="only tests whose names fit, as pytest's -k")
    checking.set_defaults(run=run_check)
    examining = commands.add_parser(
        "doctor", help="tell what is installed and which kernels run", description=doctor.__doc__
    )
    examining.add_argument("--json", action="store_true", help="print the findings as JSON")
    examining.set_defaults(run=run_doctor)
    lab.add_commands(commands)
    return top


def add_place(command: argparse.ArgumentParser) -> None:
    """Let a command be narrowed to a room or a group of a room."""
    command.add_argument("--room", metavar="ROOM", help=f"only this room: {', '.join(catalog.rooms())}")
    command.add_argument("--group", metavar="GROUP", help="only this group of a room, such as token")


def run_list(options: argparse.Namespace) -> int:
    """Print the methods by folder."""
    cards = chosen(options.pattern, options.room, options.group)
    if options.json:
        print(json.dumps([described(card) for card in cards], indent=2))
        return 0
    width = max(len(card.name) for card in cards)
    for place, members in reference.rooms(cards).items():
        print(f"{place}: {reference.meaning_of(place, importlib.import_module)}")
        for card in members:
            print(f"  {card.name:{width}}  {card.summary}")
        print()
    print(f"{len(cards)} methods; 'normkit show NAME' tells more")
    return 0


def chosen(pattern: str, room: str | None, group: str | None) -> list[Card]:
    """Return the cards that fit, and name the nearest where none does."""
    names = catalog.methods(pattern, room=room, group=group) or catalog.methods(f"*{pattern}*", room=room, group=group)
    if not names and not set(pattern) & set("*?["):
        catalog.card(pattern)
    if not names:
        raise ValueError(f"no method fits {pattern!r} there; 'normkit list' shows them all")
    return [catalog.card(name) for name in names]


def described(card: Card) -> dict[str, Any]:
    """Return what is known of a method, as plain values."""
    return {
        "name": card.name,
        "class": card.entry.__name__,
        "folder": reference.folder(card),
        "summary": card.summary,
        "paper": card.paper,
        "shape": card.shape,
        "over": card.over,
        "inputs": {name: {"shape": str(layout), "optional": layout.optional} for name, layout in card.inputs.items()},
        "arguments": {a.name: {"default": a.default, "meaning": a.meaning} for a in reference.arguments(card)},
        "replaces": list(card.replaces),
        "invariant": list(card.invariant),
        "provenance": card.provenance,
        "exempt": dict(card.exempt),
    }


def run_show(options: argparse.Namespace) -> int:
    """Print what there is to know of a method."""
    card = catalog.card(options.name)
    if options.json:
        state = {entry.name: {"shape": entry.shape, "kind": entry.kind} for entry in reference.state(card)}
        print(json.dumps({**described(card), "explanation": reference.explanation(card), "state": state}, indent=2))
    else:
        print("\n\n".join(f"{title}\n{body}" if title else body for title, body in sections(card) if body))
    return 0


def sections(card: Card) -> list[tuple[str, str]]:
    """Return title and text of every part of the description; an empty text is left out."""
    return [
        ("", f"{card.name}: {card.summary}\n{reference.folder(card)}, {reference.form(card)} {card.entry.__name__}"),
        ("", reference.explanation(card)),
        ("Use", indented(reference.usage(card))),
        ("Arguments", indented("\n".join(table(argument_rows(card))))),
        ("Axes", indented("\n".join(axes_lines(card)))),
        ("State", indented("\n".join(table([(e.name, e.shape, e.kind) for e in reference.state(card)])) or "none")),
        ("Replaces", indented(", ".join(card.replaces))),
        ("Unchanged by", indented(", ".join(card.invariant))),
        ("Paper", indented(card.paper)),
        ("Provenance", indented(card.provenance)),
        ("Does not keep", indented("\n".join(f"{line}: {reason}" for line, reason in reference.exemptions(card)))),
    ]


def argument_rows(card: Card) -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every argument."""
    return [(a.name, a.default, a.meaning) for a in reference.arguments(card)]


def axes_lines(card: Card) -> list[str]:
    """Draw the axes, and say in words what the drawing means."""
    return [*reference.drawing(card).split("\n"), reference.statistic(card), *reference.legend(card)]


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align rows of words in columns; the last column is wrapped."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        start = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)) + "  "
        wrapped = _wrapped(row[-1], max(40, WIDTH - len(start)))
        lines += [start + wrapped[0], *(" " * len(start) + more for more in wrapped[1:])]
    return [line.rstrip() for line in lines]


def _wrapped(text: str, width: int) -> list[str]:
    """Break at spaces only, so that paths and names stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]


def indented(text: str) -> str:
    """Set a text off by two columns."""
    return textwrap.indent(text, "  ")


def run_check(options: argparse.Namespace) -> int:
    """Run the contract's tests on the methods named."""
    names = [catalog.find(name).card.name if name in catalog.methods() else name for name in options.names]
    cards = [catalog.card(name) for name in names]
    pytest = library("pytest")
    folder = Path(__file__).with_name("contract")
    os.environ["NORMKIT_CHECK"] = ",".join(names)
    words = [str(folder), f"--rootdir={folder}", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--tb=short"]
    failed = pytest.main([*words, "-k", options.only] if options.only else words)
    kept = "; ".join(f"{card.name} {'breaks' if failed else 'keeps'} the contract" for card in cards)
    print(f"{kept} of a {' and a '.join(sorted({card.kind.name for card in cards}))}")
    return 1 if failed else 0


def run_doctor(options: argparse.Namespace) -> int:
    """Print the state of this installation."""
    found = doctor.examine()
    print(json.dumps(found, indent=2) if options.json else "\n".join(table([(k, str(v)) for k, v in found.items()])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
