"""What a method does to the axes of its input, as a drawing: each is worked out from the card, or by running it small.

A grid for statistics, a matrix before and after a step for optimizers, scores for attention, a curve where every
number is mapped by itself, a diagram of boxes for placements, densities for transforms.
"""

from __future__ import annotations

import functools
import html
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import normkit as nk
from normkit import families, reference
from normkit.catalog import Card

CELL, GAP, LABEL = 14, 10, 16
COUNTS = (6, 4, 3, 2)  # cells along the last axis, the one before it, and so on
POINTS = 41
SPOKEN = {"*": "positions", "+": "positions", "...": "leading axes"}
TIMES = "\N{MULTIPLICATION SIGN}"


class Picture(NamedTuple):
    """A drawing, and what its signs mean."""

    svg: str
    legend: str


@functools.cache
def picture(name: str) -> Picture | None:
    """Draw a method by its kind; None where there is nothing to draw, as of text."""
    card = nk.card(name)
    drawn = None
    if card.kind.name == "optimizer":
        drawn = step_of_matrix(card)
    elif card.kind.name in ("block", "whole layer"):
        drawn = wiring(card)
    elif card.kind.name == "transform":
        drawn = density(card)
    elif card.kind.name == "core":
        drawn = scores(card)
    elif reference.statistic(card).startswith("no statistic"):
        drawn = curve(card)
    if drawn is None and card.shape.axes:
        drawn = grid(card)
    elif drawn is None and card.kind.name != "text":
        drawn = growth(card)
    return drawn


def svg(width: float, height: float, label: str, inside: str, kind: str = "") -> str:
    """Wrap a drawing, with its words for those who do not see it."""
    box = f'viewBox="0 0 {_short(width)} {_short(height)}" width="{_short(width)}" height="{_short(height)}"'
    label = html.escape(label, quote=True)
    return f'<svg class="pic{kind}" role="img" aria-label="{label}" {box}>{inside}</svg>'


def _short(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_short(x)}" y="{_short(y)}"{at}>{html.escape(words)}</text>'


# The axes of a statistic.


def spans(card: Card) -> list[tuple[str, str]]:
    """Each axis of the first input with what a statistic takes of it: whole, part, past, or none.

    >>> spans(nk.card("rmsnorm")), spans(nk.card("onlinenorm"))
    ([('...', 'none'), ('C', 'whole')], [('N', 'past'), ('C', 'none'), ('*', 'whole')])
    """
    moved = (reference.reach(card.name) or {}) if card.over else {}
    return [
        (axis.name, "past" if _ordered(axis.name, axis.spanned, moved) else axis.spanned)
        for axis in reference.axes(card)
    ]


def _ordered(axis: str, spanned: str, moved: dict[str, str]) -> bool:
    return axis in ("N", "T", "L") and spanned == "whole" and moved.get(axis) == "later"


def grid(card: Card) -> Picture:
    """Draw the cells of the input, those of one statistic filled, and one that it normalizes ringed."""
    axes = spans(card)
    known = bool(reference.statistic(card)) and bool(card.over)
    label = reference.statistic(card) or f"axes {card.shape}"
    drawing, width, height = cells(tuple(axes), known)
    legend = "filled: the entries of one statistic; ring: an entry that it is for" if known else ""
    if any(kind == "part" for _, kind in axes):
        legend += "; a group is half of the axis here"
    if any(kind == "past" for _, kind in axes):
        legend += "; of what came before and not after"
    return Picture(svg(width, height, label, drawing), legend or "the axes; no statistic is declared for them")


@functools.cache
def cells(axes: tuple[tuple[str, str], ...], known: bool) -> tuple[str, float, float]:
    """Draw panels of cells: the last two axes are a panel's columns and rows, those before lay panels out."""
    named = list(axes)
    while len(named) > 4:  # axes before the fourth from the last are drawn as one
        (a, p), (b, q) = named[:2]
        named[:2] = [(f"{a} {b}", p if p == q else "none")]
    counts = list(COUNTS[: len(named)])[::-1]
    counts = [1] * (4 - len(named)) + counts
    full = [("", "none")] * (4 - len(named)) + [(" ".join(SPOKEN.get(n, n) for n in a.split()), p) for a, p in named]
    down, across, rows, columns = counts  # the fourth axis from the end goes down
    at = [count // 2 for count in counts]
    panel_w, panel_h = columns * CELL, rows * CELL
    left, top = (10 + 7 * len(full[2][0]) + 14 if rows > 1 else 2), LABEL + (LABEL if across > 1 else 0)
    left += 20 if down > 1 else 0
    lines = "".join(f"M0 {r * CELL}h{panel_w}" for r in range(rows + 1))
    lines += "".join(f"M{c * CELL} 0v{panel_h}" for c in range(columns + 1))
    inside = []
    for i in range(down):
        for j in range(across):
            x, y = left + j * (panel_w + GAP), top + i * (panel_h + GAP)
            if known and _taken(full[0][1], i, at[0], down) and _taken(full[1][1], j, at[1], across):
                r0, r1 = _range(full[2][1], at[2], rows)
                c0, c1 = _range(full[3][1], at[3], columns)
                size = f'width="{(c1 - c0) * CELL}" height="{(r1 - r0) * CELL}"'
                inside.append(f'<rect class="in" x="{x + c0 * CELL}" y="{y + r0 * CELL}" {size}/>')
            inside.append(f'<path class="net" d="{lines}" transform="translate({x} {y})"/>')
            if known and (i, j) == (at[0], at[1]):
                centre = (x + (at[3] + 0.5) * CELL, y + (at[2] + 0.5) * CELL)
                inside.append(f'<circle cx="{_short(centre[0])}" cy="{_short(centre[1])}" r="4"/>')
    width, height = left + across * (panel_w + GAP) - GAP + 2, top + down * (panel_h + GAP) - GAP + 2
    inside.append(_text(left + panel_w / 2, top - 4, f"{full[3][0]} →"))
    if rows > 1:
        inside.append(_text(left - 4, top + panel_h / 2 + 4, f"{full[2][0]} ↓", "end"))
    if across > 1:
        inside.append(_text(left + (width - left) / 2, LABEL - 5, f"{full[1][0]} ⇒"))
    if down > 1:
        inside.append(_text(2, top + panel_h + GAP, f"{full[0][0]} ⇓", "start"))
    least = 9 * max(len(full[3][0]) + 2, len(full[1][0]) + 2) + left
    return "".join(inside), max(width, least), height


def _taken(kind: str, index: int, at: int, count: int) -> bool:
    first, last = _range(kind, at, count)
    return first <= index < last


def _range(kind: str, at: int, count: int) -> tuple[int, int]:
    if kind == "whole":
        return 0, count
    if kind == "past":
        return 0, at + 1
    if kind == "part":
        half = max(1, count // 2)
        return (0, half) if at < half else (half, count)
    return at, at + 1


# Optimizers: a matrix before and after.


def step_of_matrix(card: Card) -> Picture | None:
    """Draw a gradient whose rows, columns and singular values are unequal, and the step that it leads to."""
    taken = reference.first_step(card)
    if taken is None:
        return None
    gradient, step = taken
    n, m = gradient.shape
    drawn, x = [], 2.0
    for title, matrix in zip(reference.STEP, taken, strict=True):
        drawn.append(_text(x, 12, title, "start"))
        drawn.append(_shades(matrix, x, 18))
        x += max(m * CELL, 78) + 32
    drawn.append(_text(2 + max(m * CELL, 78) + 10, 18 + n * CELL / 2 + 5, "→"))
    label = reference.spread_in_words(gradient, step)
    legend = f"shade: the size of an entry; the gradient is one whose lengths differ. {label[0].upper()}{label[1:]}"
    return Picture(svg(x - 26, 22 + n * CELL, label, "".join(drawn)), legend)


def _shades(matrix: Tensor, x: float, y: float) -> str:
    return _shaded(reference.levels(matrix), x, y)


def _shaded(shades: list[list[int]], x: float, y: float, cell: int = CELL) -> str:
    """The cells of a matrix, each in its shade."""
    paths: dict[int, str] = {}
    for row, values in enumerate(shades):
        for column, shade in enumerate(values):
            paths[shade] = paths.get(shade, "") + f"M{column * cell} {row * cell}h{cell - 1}v{cell - 1}h{1 - cell}z"
    inside = "".join(f'<path class="s{shade}" d="{path}"/>' for shade, path in sorted(paths.items()))
    return f'<g transform="translate({_short(x)} {_short(y)})">{inside}</g>'


# Attention: queries and keys, heads, features.


def scores(card: Card) -> Picture:
    """Draw the scores of two heads, a row a query and a column a key, and queries by their features."""
    over = set(card.over.split())
    heads, tokens = 2, 5
    both = "heads" in over
    x, size = 34.0, tokens * CELL
    drawn = [_text(x - 4, 22 + size / 2, "T ↓", "end")]
    kinds = []
    if over & {"S", "T"} or not over & {"C"}:
        kinds.append(("S →", "S" in over, "T" in over, tokens))
    if "C" in over:
        kinds.append(("C →", True, False, 4))
    for title, along, down, columns in kinds:
        for head in range(heads):
            drawn.append(_text(x + columns * CELL / 2, 12, f"head {head + 1}, {title}"))
            if head == 0 or both:
                rows = (0, tokens) if down else (2, 3)
                span = (0, columns) if along else (2, 3)
                box = f'width="{(span[1] - span[0]) * CELL}" height="{(rows[1] - rows[0]) * CELL}"'
                drawn.append(f'<rect class="in" x="{x + span[0] * CELL}" y="{18 + rows[0] * CELL}" {box}/>')
            lines = "".join(f"M0 {r * CELL}h{columns * CELL}" for r in range(tokens + 1))
            lines += "".join(f"M{c * CELL} 0v{size}" for c in range(columns + 1))
            drawn.append(f'<path class="net" d="{lines}" transform="translate({_short(x)} 18)"/>')
            if head == 0:
                ring = (x + 2.5 * CELL, 18 + 2.5 * CELL)
                drawn.append(f'<circle cx="{_short(ring[0])}" cy="{_short(ring[1])}" r="4"/>')
            x += max(columns * CELL, 84) + GAP
    words = {
        "S": "the keys of a query (S)",
        "T": "the queries or tokens (T)",
        "C": "the features (C)",
        "heads": "all heads",
    }
    label = f"normalized over {' and '.join(words[axis] for axis in card.over.split() if axis in words)}"
    legend = "squares of T by S: scores of queries and keys; of T by C: queries and keys by their features. "
    return Picture(svg(x, 24 + size, label, "".join(drawn)), legend + "Filled: what is normalized together")


# Maps of single numbers.


def curve(card: Card) -> Picture | None:
    """Draw what a number becomes, beside the line where nothing changes."""
    unit = card.shape.kind == "unit"
    values = torch.linspace(0, 1, POINTS) if unit else torch.linspace(-4, 4, POINTS)
    with quiet():
        try:
            subject = card.kind.subject(card, seed=1, optional=True)
            if isinstance(subject.made, nn.Module):
                subject.made.eval()
            heights = []
            for value in values.tolist():
                torch.default_generator.manual_seed(1)
                y = subject.call(torch.full_like(subject.inputs[0], value), *subject.inputs[1:])
                y = y[0] if isinstance(y, tuple | list) else y
                heights.append(float(y.detach().reshape(-1)[0]))
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):
            return None
    curve_y = torch.tensor(heights)
    if not curve_y.isfinite().all():
        return None
    low, high = (
        min(float(curve_y.min()), float(values.min()), -0.1),
        max(float(curve_y.max()), float(values.max()), 0.1),
    )
    wide, tall, pad = 220.0, 140.0, 18.0

    def place(x: float, y: float) -> str:
        left = pad + (x - float(values[0])) / float(values[-1] - values[0]) * wide
        return f"{_short(left)} {_short(pad + (high - y) / (high - low) * tall)}"

    points = "L".join(place(x, y) for x, y in zip(values.tolist(), curve_y.tolist(), strict=True))
    ends = (float(values[0]), float(values[-1]))
    inside = f'<path class="net" d="M{place(ends[0], 0)}L{place(ends[1], 0)}M{place(0, low)}L{place(0, high)}"/>'
    inside += f'<path class="same" d="M{place(ends[0], ends[0])}L{place(ends[1], ends[1])}"/>'
    inside += f'<path class="line" d="M{points}"/>'
    inside += _text(pad + wide - 4, pad + (high / (high - low)) * tall - 4, f"x, {ends[0]:g} to {ends[1]:g}", "end")
    zero = 0.0 if unit else -ends[0] / (ends[1] - ends[0])
    inside += _text(pad + zero * wide + 6, 14, f"y, {low:.3g} to {high:.3g}", "start")
    label = f"y against x, from {curve_y[0]:.2g} at {ends[0]:g} to {curve_y[-1]:.2g} at {ends[1]:g}"
    legend = "line: what an entry becomes, with the first parameters; broken: where it would stay as it is"
    if torch.allclose(curve_y, values.to(curve_y.dtype), atol=1e-4):
        legend = "line: what an entry becomes; as it is built, each stays as it is"
    return Picture(svg(wide + 2 * pad, tall + 2 * pad, label, inside), legend)


def growth(card: Card) -> Picture | None:
    """Draw the number that a function of no tensor gives, against the whole number that it is asked for."""
    asked = [name for name, value in card.example.items() if type(value) is int]
    if len(card.example) != 1 or not asked:
        return None
    heights = [float(card.entry(**{asked[0]: number})) for number in range(1, 101)]
    wide, tall, pad = 220.0, 140.0, 18.0
    points = [
        f"{_short(pad + at / 99 * wide)} {_short(pad + tall - y / max(heights) * tall)}" for at, y in enumerate(heights)
    ]
    inside = f'<path class="net" d="M{_short(pad)} {_short(pad)}V{_short(pad + tall)}H{_short(pad + wide)}"/>'
    inside += f'<path class="line" d="M{"L".join(points)}"/>'
    inside += _text(pad + wide, pad + tall + 14, f"{asked[0]}, 1 to 100", "end")
    inside += _text(pad + 6, 14, f"result, 0 to {max(heights):.3g}", "start")
    label = f"the result against {asked[0]}, from {heights[0]:.3g} at 1 to {heights[-1]:.3g} at 100"
    return Picture(svg(wide + 2 * pad, tall + 2 * pad, label, inside), f"line: the result against {asked[0]}")


# Placements: the boxes that a block sends its input through, as they were called.


def wiring(card: Card) -> Picture | None:
    """Run a small block, and draw which part read what: from the graph that its gradients go back along."""
    with quiet():
        try:
            nodes, edges = _called(card)
        except (TypeError, ValueError, RuntimeError, AttributeError):
            return None
    if len(nodes) < 3 or len(nodes) > 26:
        return None
    tall = 24
    width = max(90, 12 + 7 * max(len(name) for name in nodes))
    inside, reach = [], 0
    for source, target in edges:
        y0, y1 = source * tall + 20, target * tall + 4
        if target == source + 1:
            inside.append(f'<path class="wire" d="M{width / 2:g} {y0}V{y1}"/>')
        else:
            bend = min(90, 10 + 8 * (target - source))
            reach = max(reach, bend)
            inside.append(f'<path class="wire" d="M{width} {y0 - 8}c{bend} 0 {bend} {y1 - y0 + 16} 0 {y1 - y0 + 16}"/>')
    for at, name in enumerate(nodes):
        norm = ' class="in"' if "norm" in name.lower() else ' class="box"'
        inside.append(f'<rect{norm} x="1" y="{at * tall + 4}" width="{width - 2}" height="16" rx="3"/>')
        inside.append(_text(width / 2, at * tall + 16, name))
    label = "from top to bottom: " + ", ".join(nodes)
    legend = (
        "boxes in the order they are called; filled: norms; lines: who reads whose output, bent ones past other boxes"
    )
    return Picture(svg(width + reach, len(nodes) * tall + 4, label, "".join(inside)), legend)


def _called(card: Card) -> tuple[list[str], list[tuple[int, int]]]:
    subject = card.kind.subject(card, seed=1)
    nodes: list[str] = []
    edges: list[tuple[int, int]] = []
    leaves: dict[int, int] = {}  # a cut tensor -> the node that made it
    kept: list[Tensor] = []

    def node(name: str, sources: set[int]) -> int:
        nodes.append(name)
        edges.extend((source, len(nodes) - 1) for source in sorted(sources))
        return len(nodes) - 1

    def cut(tensor: Tensor, at: int) -> Tensor:
        fresh = tensor.detach().clone().requires_grad_()
        leaves[id(fresh)] = at
        kept.append(fresh)
        return fresh

    def sources(tensor: Tensor) -> set[int]:
        """The nodes that a tensor was computed from; sums and products on the way become nodes."""
        if id(tensor) in leaves:
            return {leaves[id(tensor)]}
        return _behind(tensor.grad_fn)

    seen: dict[object, set[int]] = {}

    def _behind(step: object) -> set[int]:
        if step is None:
            return set()
        if step in seen:
            return seen[step]
        variable = getattr(step, "variable", None)
        if variable is not None:
            return {leaves[id(variable)]} if id(variable) in leaves else set()
        below = [_behind(other) for other, _ in step.next_functions]  # type: ignore[attr-defined]
        own = set().union(*below)
        name = type(step).__name__
        sign = "+" if name.startswith(("Add", "Sub")) else TIMES if name.startswith(("Mul", "Bmm", "Mm")) else ""
        if sign and sum(bool(part) for part in below) > 1 and len(own) > 1:
            own = {node(sign, own)}
        seen[step] = own
        return own

    def hook(name: str) -> Callable[..., Tensor | None]:
        def taken(module: nn.Module, args: tuple[object, ...], output: object) -> Tensor | None:
            tensors = [x for x in args if isinstance(x, Tensor) and x.is_floating_point()]
            if not isinstance(output, Tensor) or not output.is_floating_point():
                return None
            return cut(output, node(name, set().union(*map(sources, tensors))))

        return taken

    module = subject.made
    parts = [(name, part) for name, part in module.named_modules() if name and not any(part.children())]
    handles = [part.register_forward_hook(hook(name)) for name, part in parts]
    try:
        first = cut(subject.inputs[0], node("x", set()))
        inputs = [first, *subject.inputs[1:]]
        returned = module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    for y in returned if isinstance(returned, tuple | list) else [returned]:
        if isinstance(y, Tensor):
            node("y", sources(y))
    return nodes, edges


# Transforms: what a normal density becomes.


def density(card: Card) -> Picture | None:
    """Draw the density that a small transform with moved parameters gives, along one axis, beside the plain one."""
    if card.shape.kind not in ("", "unit"):
        return None
    values = torch.linspace(0.02, 0.98, POINTS) if card.shape.kind == "unit" else torch.linspace(-3.5, 3.5, POINTS)
    with quiet():
        try:
            subject = card.kind.subject(card, seed=1)
            with torch.no_grad():
                for p in subject.made.parameters():
                    p.add_(0.3 * torch.randn_like(p))
                base = subject.inputs[0][:1].clone()
                heights, plain = [], []
                for value in values.tolist():
                    x = base * 0.0 + (0.5 if card.shape.kind == "unit" else 0.0)
                    x.reshape(-1)[0] = value
                    y, log_det = subject.made(x, *[other[:1] for other in subject.inputs[1:]])
                    normal = card.shape.kind != "unit"
                    heights.append(float(log_det.reshape(-1)[0]) - (float((y**2).sum()) / 2 if normal else 0.0))
                    plain.append(-(value**2) / 2 if normal else 0.0)
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):
            return None
    made, before = (torch.tensor(x, dtype=torch.float64) for x in (heights, plain))
    if not made.isfinite().all() or int(made.argmax()) in (0, POINTS - 1):  # most of it is not to be seen there
        return None
    made, before = ((x - x.max()).exp() for x in (made, before))
    made, before = (x / x.sum() for x in (made, before))
    top = float(max(made.max(), before.max()))
    wide, tall, pad = 220.0, 110.0, 18.0

    def line(ys: Tensor) -> str:
        return "L".join(
            f"{_short(pad + i / (POINTS - 1) * wide)} {_short(pad + (1 - float(y) / top) * tall)}"
            for i, y in enumerate(ys)
        )

    inside = f'<path class="net" d="M{pad:g} {pad + tall:g}h{wide:g}"/><path class="same" d="M{line(before)}"/>'
    inside += f'<path class="line" d="M{line(made)}"/>'
    inside += _text(pad + wide, pad + tall + 14, f"the first number, {values[0]:.2g} to {values[-1]:.2g}", "end")
    label = "the density that the transform gives along its first number, beside the one it starts from"
    legend = "line: the density of the transform, its parameters moved at random; broken: without it"
    return Picture(svg(wide + 2 * pad, tall + 2 * pad + 4, label, inside), legend)


STEPS, SIDE = 150, 24
LEARNED = Path(__file__).with_name("learned.json")  # ``python docs/pictures.py`` writes it


def moons(count: int = 512) -> Tensor:
    """Points on two half moons."""
    angle, upper = math.pi * torch.rand(count), torch.arange(count) % 2 == 1
    x = torch.where(upper, angle.cos(), 1 - angle.cos()) - 0.5
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin()) - 0.25
    return 1.5 * torch.stack([x, y], 1) + 0.1 * torch.randn(count, 2)


def learned(flow: str) -> Picture | None:
    """Draw what a flow learned of two half moons, now if it is not on file; None for flows of images."""
    record = json.loads(LEARNED.read_text(encoding="utf-8")).get(flow) or learn(flow)
    if record is None:
        return None
    drawn = _shaded([[int(shade) for shade in row] for row in record["shades"]], 0, 0, cell=7)
    label = f"the density that it learned of two half moons in {STEPS} steps: {record['nats']:.2f} nats on new points"
    return Picture(svg(SIDE * 7, SIDE * 7, label, drawn), label)


def learn(flow: str) -> dict[str, Any] | None:
    """Train a flow of two numbers for a few steps; return its nats on new points, and its density in shades."""
    with quiet():
        try:
            made = nk.density.flow(flow, 2)
        except ValueError:
            return None
        data = moons()
        made.initialize(data)
        optimizer = torch.optim.Adam(made.parameters(), lr=5e-3)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (-made.law().log_prob(data[torch.randint(len(data), (256,))]).mean()).backward()
            optimizer.step()
        line = torch.linspace(-2.6, 2.6, SIDE)
        points = torch.cartesian_prod(line, line)
        with torch.no_grad():
            heights = made.law().log_prob(points).exp().reshape(SIDE, SIDE).T.flip(0)
            nats = -float(made.law().log_prob(moons()).mean())
    return {"nats": round(nats, 4), "shades": ["".join(map(str, row)) for row in reference.levels(heights)]}


@contextmanager
def quiet() -> Iterator[None]:
    """The same random numbers in every build, and no warnings of small sizes."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        yield


if __name__ == "__main__":
    records = {flow: record for flow in families.family("flow") if (record := learn(flow))}
    LEARNED.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
