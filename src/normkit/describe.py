"""What ``normkit list`` and ``normkit show`` print."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from normkit import catalog, check, families, reference
from normkit.catalog import Card
from normkit.columns import number_of
from normkit.kinds.arguments import near
from normkit.safe import say

WIDTH = 100
ABBREVIATIONS = {"rms": "root mean square", "bn": "batch norm", "ln": "layer norm"}


def run_list(options: argparse.Namespace, standing: Callable[[list[Card]], list[Card]] | None = None) -> int:
    """Print the methods by folder; ``standing`` picks those that stand in a model."""
    if options.kind in families.KINDS:
        return list_family(options)
    cards = select_cards(options.pattern, options.room, options.group, options.kind)
    if standing is not None and not (cards := standing(cards)):
        raise ValueError(f"none of the methods that {options.pattern!r} names fits {options.fits!r}")
    if options.json:
        say(json.dumps([describe(card) for card in cards], indent=2))
        return 0
    width = max(len(card.name) for card in cards)
    for place, members in reference.rooms(cards).items():
        say(": ".join(filter(None, [place, reference.meaning_of(place, importlib.import_module)])))
        for card in members:
            say(f"  {card.name:{width}}  {card.evidence:9}  {card.summary}")
        say()
    words = {card.evidence for card in cards}
    say("\n".join(f"{word}: {meaning}" for word, meaning in catalog.EVIDENCE.items() if word in words))
    more = ", ".join(
        filter(None, ["'normkit show NAME' tells more", way_to_folder(options.pattern, catalog.members())])
    )
    say(f"{number_of(len(cards), 'method')}; {more}")
    return 0


def list_family(options: argparse.Namespace) -> int:
    """Print the flows, samplers or others of a kind."""
    if options.room or options.group or options.fits:
        raise ValueError(f"--kind {options.kind} takes no --room, --group or --fits")
    family = families.family(options.kind)
    pattern = options.pattern.lower()
    names = [name for name in family if fnmatch.fnmatch(name, pattern)] or [name for name in family if pattern in name]
    if not names:
        check.choice("list", options.kind, options.pattern, tuple(family))
    if options.json:
        say(json.dumps([member(options.kind, name) for name in names], indent=2))
        return 0
    width = max(map(len, names))
    for name in names:
        say(f"  {name:{width}}  {family.summary(name)}")
    say(f"\n{len(names)} of the kind {options.kind}; 'normkit show NAME --kind {options.kind}' tells more")
    return 0


def member(kind: str, name: str) -> dict[str, Any]:
    """Return what is known of a flow, a sampler or another, as plain values."""
    family = families.family(kind)
    return {"name": name, "kind": kind, "summary": family.summary(name), "explanation": family.about(name)}


def show_member(kind: str, name: str, as_json: bool) -> int:
    """Print what there is to know of a flow, a sampler or another."""
    known = member(kind, check.choice("show", kind, name, tuple(families.family(kind))))
    say(json.dumps(known, indent=2) if as_json else f"{kind} {name}: {known['explanation']}")
    return 0


def select_cards(pattern: str, room: str | None, group: str | None, kind: str | None = None) -> list[Card]:
    """Return the cards that fit, and name the nearest where none does."""
    cards = [catalog.card(name) for name in catalog.methods(room=room, group=group)]
    cards = cards if kind is None else _of_kind(cards, kind)
    matches = [card for card in cards if fits(card, pattern)] or [card for card in cards if fits(card, f"*{pattern}*")]
    if (short := pattern.strip("*").lower()) in ABBREVIATIONS:
        matches = [card for card in matches if means(card, short)]
    elif not matches and (way := way_to_folder(pattern, cards)):
        raise ValueError(f"no method {pattern!r}; {way}")
    elif not matches and not set(pattern) & set("*?["):
        matches = [card for card in cards if card is catalog.card(pattern)]
    if not matches:
        raise ValueError(f"no method fits {pattern!r} there; {_nearest(pattern, cards)}")
    return matches


def way_to_folder(word: str, cards: Iterable[Card]) -> str:
    """Say how the methods of a room, a group or both are listed; nothing where a word is the name of neither."""
    rooms = {card.room: f"--room {card.room}" for card in cards}
    groups = {card.group: f"--group {card.group}" for card in cards}
    both = {reference.folder(card): f"--room {card.room} --group {card.group}" for card in cards}
    options = {**both, **groups, **rooms}.get(word.lower())
    return f"'normkit list {options}' lists those of that folder" if options and word else ""


def _of_kind(cards: Sequence[Card], kind: str) -> list[Card]:
    check.choice("list", "kind", kind, _kinds(cards))
    return [card for card in cards if card.kind.name == kind]


def _kinds(cards: Iterable[Card]) -> tuple[str, ...]:
    return (*sorted({card.kind.name for card in cards}), *families.KINDS)


def _nearest(pattern: str, cards: Iterable[Card]) -> str:
    """What to look for in the place of a pattern that fits nothing."""
    close = near(pattern.strip("*"), [card.name for card in cards])
    return f"did you mean {close[0]!r}?" if close else "'normkit list' shows them all"


def means(card: Card, short: str) -> bool:
    """Whether an abbreviation in a name is one: it begins a word there, or the card says what it stands for.

    >>> means(catalog.card("crmsnorm"), "rms"), means(catalog.card("farms"), "rms")
    (True, False)
    """
    text = f"{card.summary} {reference.explanation(card)} {card.paper}"
    starts = any(word.startswith(short) for word in card.name.split("-"))
    return starts or catalog.comparison_key(ABBREVIATIONS[short]) in catalog.comparison_key(re.sub(r"\s", "", text))


def fits(card: Card, pattern: str) -> bool:
    """Whether a method's name, or another name that it has, is of the pattern."""
    return any(_is_of(name.lower(), pattern.lower()) for name in (card.name, *card.aliases))


def _is_of(name: str, pattern: str) -> bool:
    """Whether a name fits as it is written, or without dashes from the start of one of its words.

    >>> _is_of("qk-norm", "*qknorm*"), _is_of("crmsnorm", "*rms*"), _is_of("pair-norm-si", "*rms*")
    (True, True, False)
    """
    if fnmatch.fnmatch(name, pattern) or "[" in pattern:  # a dash in brackets is a range
        return fnmatch.fnmatch(name, pattern)
    words = re.split("[-_ ]", name)
    starts = range(len(words)) if pattern.startswith("*") else [0]
    target = catalog.comparison_key(pattern.lstrip("*"))
    return any(fnmatch.fnmatch(catalog.comparison_key("".join(words[at:])), target) for at in starts)


def describe(card: Card) -> dict[str, Any]:
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
        "aliases": {name: dict(brought) for name, brought in card.aliases.items()},
        "called": dict(card.called),
        "replaces": list(card.replaces),
        "invariant": list(card.invariant),
        "evidence": card.evidence,
        "provenance": card.provenance,
        "exempt": dict(card.exempt),
        "messages": card.messages,
    }


def run_show(options: argparse.Namespace, claimed: Callable[[str], str]) -> int:
    """Print what there is to know of a method, or of a flow, a sampler or another kind.

    ``claimed`` says in a line what came of a method's claims.
    """
    if options.kind in families.KINDS:
        return show_member(options.kind, options.name, options.json)
    if options.kind is not None:
        check.choice("show", "kind", options.kind, _kinds(catalog.members()))
    try:
        card, brought = catalog.find(options.name)
    except ValueError:
        kinds = [kind for kind in families.KINDS if options.name in families.family(kind)]
        if not kinds:
            raise
        require_kind(options, kinds[0])
        return show_member(kinds[0], options.name, options.json)
    require_kind(options, card.kind.name)
    if options.json:
        state = {entry.name: {"shape": entry.shape, "kind": entry.kind} for entry in reference.state(card)}
        beside = {"explanation": reference.explanation(card), "state": state, "claims": claimed(card.name)}
        say(json.dumps({**describe(card), **beside}, indent=2))
    else:
        if brought:
            say(f"{options.name} is {card.name} with {reference.write(brought)}\n")
        parts = [*sections(card), ("Claims", indent(claimed(card.name)))]
        say("\n\n".join(f"{title}\n{body}" if title else body for title, body in parts if body))
    return 0


def require_kind(options: argparse.Namespace, kind: str) -> None:
    """Refuse another kind than the one that a name is of."""
    if options.kind not in (None, kind):
        raise ValueError(f"{options.name} is of the kind {kind}, not {options.kind}")


def sections(card: Card) -> list[tuple[str, str]]:
    """Return title and text of every part of the description; an empty text is left out."""
    return [
        ("", f"{card.name}: {card.summary}\n{reference.folder(card)}, {reference.form(card)} {card.entry.__name__}"),
        ("", explain(card)),
        ("Use", indent(reference.usage(card))),
        ("Arguments", indent("\n".join(table(argument_rows(card))))),
        ("Takes the arguments of", indent("\n".join(table(reference.forms(card))))),
        ("Other names", indent("\n".join(table(reference.aliases(card))))),
        ("Axes", indent("\n".join(axes_lines(card)))),
        ("Step", indent("\n".join(reference.draw_step(card) if card.kind.name == "optimizer" else []))),
        ("State", indent("\n".join(state_lines(card)))),
        ("Replaces", indent(", ".join(card.replaces))),
        ("Unchanged by", indent(", ".join(card.invariant))),
        ("Paper", indent(card.paper)),
        ("Evidence", indent(reference.evidence(card))),
        ("Does not keep", indent("\n".join(f"{line}: {reason}" for line, reason in reference.exemptions(card)))),
    ]


def explain(card: Card) -> str:
    """The docstring as a terminal shows it: single quotes of code, and the paper's line left to its own part."""
    paragraphs = reference.explanation(card).replace("``", "`").split("\n\n")
    return "\n\n".join(text for text in paragraphs if not cites(" ".join(text.split()), card.paper))


def cites(text: str, paper: str) -> bool:
    """Whether a paragraph is nothing but the paper.

    >>> cites("Tent (Wang et al., 2021), arXiv 2006.10726.", "Tent: Fully Test-Time (2021), arXiv 2006.10726")
    True
    >>> cites("Tent (2021), arXiv 2006.10726; Sar (2023), arXiv 2302.12400.", "Tent (2021), arXiv 2006.10726")
    False
    """
    alone = re.fullmatch(r"[^;.]*\([^)]*\d{4}\), arXiv (\d{4}\.\d{4,5})\.?", text)
    return text.rstrip(".") == paper.rstrip(".") or (alone is not None and alone[1] in paper)


def state_lines(card: Card) -> list[str]:
    """What a checkpoint holds; of an optimizer that keeps only what its base does the docstring tells."""
    nothing = [] if card.kind.name == "optimizer" else ["none"]
    return table([(entry.name, entry.shape, entry.kind) for entry in reference.state(card)]) or nothing


def argument_rows(card: Card) -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every argument; a long default is cut, and whole in JSON."""
    return [(a.name, textwrap.shorten(a.default, 40), a.meaning.replace("``", "`")) for a in reference.arguments(card)]


def axes_lines(card: Card) -> list[str]:
    """Draw the axes, and say in words what the drawing means; text has none, and those of matrices say nothing."""
    if not card.shape.axes or card.kind.name == "optimizer":
        return []
    statistic = reference.statistic(card)
    drawing = [*reference.drawing(card).split("\n"), reference.key(card), statistic] if statistic else []
    return [*filter(None, drawing), *reference.legend(card)]


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align rows of words in columns; the last column is wrapped."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        start = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)) + "  "
        wrapped = _wrap(row[-1], max(40, WIDTH - len(start)))
        lines += [start + wrapped[0], *(" " * len(start) + more for more in wrapped[1:])]
    return [line.rstrip() for line in lines]


def _wrap(text: str, width: int) -> list[str]:
    """Break at spaces only, so that paths and names stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]


def indent(text: str) -> str:
    """Set a text off by two columns."""
    return textwrap.indent(text, "  ")
