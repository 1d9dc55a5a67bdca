"""Who came from whom, and when: family trees, the map of the field and its timeline, drawn from the cards."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable

import pictures

import normkit as nk
from normkit import reference
from normkit.catalog import Card

YEAR = re.compile(r"\([^()]*?\b((?:19|20)\d\d)\b")  # behind the authors: a title may have one as well
ARXIV = re.compile(r"arXiv (\d\d)\d\d\.")
ROW, STEP, DOT = 17, 6, 9
OVER = ("each number alone", "features", "features, in groups", "positions", "positions and features", "the batch",
        "batch and positions", "whole matrices", "keys", "something else", "no axis declared")  # fmt: skip
PLACES = {"*", "+", "H", "W", "L", "T", "h", "w", "height", "width", "num_patches", "num_tokens", "F"}
SAMPLES = {"N", "B", "...", "K", "G", "S", "2N", "4N"}


@functools.cache
def cards() -> tuple[Card, ...]:
    """All cards, by name."""
    return tuple(nk.card(name) for name in nk.methods())


def year(card: Card) -> str:
    """When a method was published: as its paper says, or the paper's number at arXiv."""
    year, number = YEAR.search(ARXIV.sub("", card.paper)), ARXIV.search(card.paper)
    return year[1] if year else f"20{number[1]}" if number else ""


@functools.cache
def known() -> frozenset[str]:
    """The names of all methods."""
    return frozenset(nk.methods())


@functools.cache
def _children() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for card in cards():
        for name in card.replaces:
            found.setdefault(name, []).append(card.name)
    return {name: tuple(own) for name, own in found.items()}


def descendants(name: str) -> tuple[str, ...]:
    """The methods that take the place of one."""
    return _children().get(name, ())


def ancestors(card: Card) -> list[str]:
    """What a method takes the place of, what that takes the place of, and so on.

    >>> ancestors(nk.card("dyt"))
    ['layernorm', 'rmsnorm']
    """
    found = list(card.replaces)
    for name in found:
        older = nk.card(name).replaces if name in known() else ()
        found += [other for other in older if other not in found and other != card.name]
    return found


def sisters(card: Card, most: int = 8) -> list[str]:
    """Methods of the same folder and axes that are neither older nor younger kin, the nearest in years first."""
    kin = {card.name, *ancestors(card), *descendants(card.name)}
    place = reference.folder(card)
    alike = [
        other
        for other in cards()
        if reference.folder(other) == place and other.name not in kin and alike_in(card, other)
    ]
    own = int(year(card) or 0)
    return [other.name for other in sorted(alike, key=lambda other: abs(int(year(other) or 0) - own))[:most]]


def alike_in(card: Card, other: Card) -> bool:
    """Whether two methods have one kind and take their statistic over the same axes, or replace the same."""
    same = card.kind.name == other.kind.name and card.over == other.over and card.shape == other.shape
    return same or bool(set(card.replaces) & set(other.replaces))


def tree(card: Card, link: dict[str, str]) -> str:
    """Draw what a method came from and what came from it, each in its year."""
    family = list(dict.fromkeys([*ancestors(card), card.name, *descendants(card.name)]))
    if len(family) == 1:
        return ""
    when = {name: int(year(nk.card(name)) or 0) if name in known() else 0 for name in family}
    first = min((y for y in when.values() if y), default=2000)
    last = max(when.values(), default=first)
    order = sorted(family, key=lambda name: (when[name] or first - 1, name != card.name, name))
    scale = 36.0 if last - first == 1 else min(26.0, 260 / (last - first + 1))  # two years have room for their words
    at = {name: (10 + scale * ((when[name] or first - 1) - first + 1), 30 + ROW * i) for i, name in enumerate(order)}
    drawn = []
    for y in range(first, last + 1):
        x = 10 + scale * (y - first + 1)
        if y in (first, last) or (y % 5 == 0 and min(y - first, last - y) > 1):
            drawn.append(pictures._text(x, 11, str(y)))
            drawn.append(f'<path class="net" d="M{x:.0f} 16V{ROW * len(order) + 26}"/>')
    edges = [(parent, name) for name in family if name in known() for parent in nk.card(name).replaces]
    wires = ""
    for parent, child in edges:
        ordered = when.get(parent, 0) <= when.get(child, 0)  # two may each take the other's place
        if ordered and parent in at and child in at and (card.name in (parent, child) or child in ancestors(card)):
            (x0, y0), (x1, y1) = at[parent], at[child]
            wires += f"M{x0:.0f} {y0}V{y1}H{x1:.0f}"
    drawn.append(f'<path class="wire" d="{wires}"/>')
    for name in order:
        x, y = at[name]
        kind = ' class="own"' if name == card.name else ""
        words = f'<text x="{x + 8:.0f}" y="{y + 4}"{kind}>{html.escape(name)}</text>'
        mark = f'<circle class="dot" cx="{x:.0f}" cy="{y}" r="3.5"/>'
        drawn.append(
            f'<a href="{link[name]}">{mark}{words}</a>' if name in link and name != card.name else mark + words
        )
    width = max(x + 16 + (8.4 if name == card.name else 7.2) * len(name) for name, (x, _) in at.items())  # own is bold
    label = f"family of {card.name} by year: " + ", ".join(f"{name} {when[name] or ''}".strip() for name in order)
    return pictures.svg(width, ROW * len(order) + 32, label, "".join(drawn))


def over_which(card: Card) -> str:
    """The column of the map that a method stands in.

    >>> [over_which(nk.card(name)) for name in ("rmsnorm", "batchnorm", "groupnorm", "dyt", "softmax", "spectral-norm")]
    ['features', 'batch and positions', 'features, in groups', 'each number alone', 'keys', 'whole matrices']
    """
    over = set(card.over.split())
    if card.kind.name == "optimizer" and card.shape.axes == ("N", "C"):
        return "whole matrices"
    if not over:
        return OVER[0] if reference.statistic(card) else OVER[-1]
    if card.room == "weight" or card.kind.name == "parametrization":
        return "whole matrices" if len(over) > 1 else "features"
    if any("/" in axis for axis in over):
        return "features, in groups"
    if "S" in over and card.room == "attention":
        return "keys"
    batch, places, features = over & SAMPLES, over & PLACES, over - SAMPLES - PLACES
    if batch:
        return "batch and positions" if places else "the batch"
    if places:
        return "positions and features" if features else "positions"
    return "features" if features & {"C", "C-1", "I", "heads", "2C", "3"} else "something else"


def shade(card: Card) -> int:
    """The step of colour of a method's year: 0 to 5."""
    own = int(year(card) or 2000)
    return sum(own >= bound for bound in (2015, 2018, 2020, 2022, 2024))


SHADES = ("before 2015", "2015 to 2017", "2018, 2019", "2020, 2021", "2022, 2023", "2024 and later")


def field(link: dict[str, str]) -> str:
    """Draw all methods: a row for what is normalized, a column for the axes, a point for each, coloured by year."""
    rooms = sorted({card.room for card in cards()}, key=lambda room: -sum(card.room == room for card in cards()))
    place = {card.name: over_which(card) for card in cards()}
    columns = [column for column in OVER if column in place.values()]
    wide, left, top, across = 74, 84, 70, 6
    drawn, y = [], float(top)
    for i, column in enumerate(columns):
        for j, words in enumerate(_broken(column, 10)):
            drawn.append(pictures._text(left + wide * i + wide / 2 - 6, 26 + 13 * j, words))
    for room in rooms:
        inside = {column: [c for c in cards() if c.room == room and place[c.name] == column] for column in columns}
        rows = max(1, *(-(-len(own) // across) for own in inside.values()))
        tall = rows * (DOT + 1) + 8
        drawn.append(pictures._text(left - 8, y + 14, room, "end"))
        drawn.append(f'<path class="net" d="M0 {y:.0f}H{left + wide * len(columns)}"/>')
        for i, column in enumerate(columns):
            own = sorted(inside[column], key=lambda c: (year(c), c.name))
            drawn += [
                point(c, left + wide * i + (k % across) * (DOT + 1) + 5, y + 9 + (k // across) * (DOT + 1), link)
                for k, c in enumerate(own)
            ]
        y += tall
    keys = ""
    for step, words in enumerate(SHADES):
        x = 2 + step * 118
        keys += f'<circle class="y{step}" cx="{x + 5}" cy="{y + 14:.0f}" r="4"/>' + pictures._text(
            x + 13, y + 18, words, "start"
        )
    label = "every method by what is normalized, in rows, and over which axes, in columns; colour is the year"
    return pictures.svg(left + wide * len(columns), y + 24, label, "".join(drawn) + keys, " field")


def _broken(words: str, most: int) -> list[str]:
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) >= most and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def point(card: Card, x: float, y: float, link: dict[str, str]) -> str:
    """A point of a map or a timeline, with its name and what it does for who rests on it."""
    title = html.escape(f"{card.name}, {year(card)}")
    circle = f'<circle class="y{shade(card)}" cx="{x:g}" cy="{y:g}" r="4"/>'
    return f'<a href="{link[card.name]}"><title>{title}</title>{circle}</a>'


def timeline(link: dict[str, str], named: int = 26) -> str:
    """Draw a column of points a year; the methods that most others replace are named."""
    years = sorted({int(year(card)) for card in cards() if year(card)})
    first = 2011
    shown = list(range(first, years[-1] + 1))
    replaced = sorted(cards(), key=lambda c: -len(descendants(c.name)))[:named]
    most = max(sum(max(int(year(c)), first) == y for c in cards()) for y in shown)
    across, tall = 4, -(-most // 4) * (DOT + 1)
    wide = across * (DOT + 1) + 14
    drawn = []
    for i, y in enumerate(shown):
        own = sorted((c for c in cards() if max(int(year(c)), first) == y), key=lambda c: (c.room, c.name))
        x = 6 + i * wide
        drawn += [
            point(c, x + (k % across) * (DOT + 1) + 4, tall - (k // across) * (DOT + 1) + 2, link)
            for k, c in enumerate(own)
        ]
        drawn.append(pictures._text(x + wide / 2 - 6, tall + 22, f"{y}" if y > first else f"to {first}"))
        names = [c for c in replaced if c in own and descendants(c.name)]
        drawn += [
            f'<a href="{link[c.name]}">'
            f'<text class="name" transform="translate({x + 2 + 15 * j:.0f} {tall + 30}) rotate(60)">'
            f"{html.escape(c.name)}</text></a>"
            for j, c in enumerate(names)
        ]
    label = "methods by year, a point for each; the names are of those that most others take the place of"
    return pictures.svg(6 + wide * len(shown) + 60, tall + 150, label, "".join(drawn), " field")


def links(up: str, of: Iterable[Card] | None = None) -> dict[str, str]:
    """The address of each method's page, seen from a page that is so far below the root."""
    return {card.name: f"{up}methods/{reference.folder(card)}/{card.name}.html" for card in of or cards()}
