"""Attention at growing lengths: what a core's time and memory grow by, and where a linear one overtakes softmax.

All cores of one form, causal or not, race at one length together, in turn, with softmax among them: normkit's, which is
torch's ``scaled_dot_product_attention``. Which cores claim to be linear is their own ``linear``. Where a linear core is
ahead at all lengths asked for, the two race on at half the length, and again, until it is not.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normkit import catalog
from normkit.attention.core import AttentionCore, Mixer
from normkit.bench import cases, cost, report, timing
from normkit.bench.timing import Entrant
from normkit.catalog import Card
from normkit.kinds import CORE, LAYER
from normkit.kinds.kind import layouts

LENGTHS = ((1024,), (2048,), (4096,), (8192,))
HEADS, HEAD_DIM = 4, 64
SECONDS, BYTES = 10.0, 2**31  # a call that would need more is not made
SHORTEST = 16  # tokens: no shorter race is held
YARDSTICK = "softmax"

RESULTS = ("seconds", "low", "high", "rounds", "growth", "peak_bytes", "peak_growth", "softmax", "overtakes", "stopped")
Rows = list[dict[str, Any]]

TAKES = ("names", "sizes", "dtypes", "forward")
COLUMNS: report.Columns = {
    "core": lambda row: row["method"],
    "form": lambda row: row["form"],
    "claim": lambda row: "linear" if row["linear"] else "-",
    "size": lambda row: row["size"],
    "type": lambda row: row["dtype"],
    "time": lambda row: "-" if row["seconds"] is None else report.duration(row["seconds"]),
    "growth": lambda row: report.times(row["growth"]),
    "memory": lambda row: "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.1f} MiB",
    "its growth": lambda row: report.times(row["peak_growth"]),
    "softmax": lambda row: report.times(row["softmax"]),
    "overtakes at": lambda row: row["overtakes"] or "-",
    "stopped": lambda row: row["stopped"] or "-",
}
LEGEND = {
    "size": f"batch x heads x tokens x head_dim; what has its own linear maps takes {HEADS * HEAD_DIM} features",
    "time": "median of the forward and the backward pass; with --forward, of the forward pass",
    "growth": "the time over that at the length before",
    "memory": "the most held at once above the inputs",
    "softmax": "softmax's time at that length and form, over the core's: above 1 where the core is faster",
    "overtakes at": "tokens from which a linear core is faster than softmax, between two lengths by interpolation",
    "stopped": f"a call that would take more than {SECONDS:.0f} s or {BYTES >> 30} GiB is not made",
}


@dataclass(frozen=True)
class Course:
    """A core in one of its forms, at one length, in one type."""

    card: Card
    causal: bool
    tokens: int
    dtype: str

    def row(self, form: str, which: str) -> dict[str, Any]:
        """What is known before the race; what it finds is added."""
        known = {"method": self.card.name, "form": form, "linear": False, "size": str(self), "tokens": self.tokens}
        return {**known, "dtype": self.dtype, "pass": which, **dict.fromkeys(RESULTS), "absent": {}}

    @property
    def is_core(self) -> bool:
        """Whether it takes queries, keys and values, cut into heads; else it cuts what it takes itself."""
        return issubclass(self.card.entry, AttentionCore)

    @property
    def heads(self) -> int:
        """Heads of the result, so that all cores have the same width; some want queries in more, smaller heads."""
        return HEADS // (self.card.entry.splits if self.is_core else 1)

    @property
    def width(self) -> int:
        """Features of a head, or of a token where the core cuts heads itself."""
        return HEAD_DIM if self.is_core else HEADS * HEAD_DIM

    def __str__(self) -> str:
        """Write the size as the table does."""
        return f"1x{HEADS}x{self.tokens}x{HEAD_DIM}"


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race the cores at every length, telling on stderr how far they are."""
    lengths = sorted({tokens(size) for size in (cases.sizes(options.sizes) if options.sizes else LENGTHS)})
    known = {causal: choose(options.names, causal) for causal in (False, True)}
    rows: Rows = []
    failed: dict[str, str] = {}
    for dtype in cases.dtypes(options.dtypes or "float32"):
        for causal, cards in known.items():
            runner = Race(causal, dtype, options.forward, options.repeats, clock)
            rows += runner.run(cards, lengths)
            failed |= runner.failed
    return {"rows": rows, "failed": failed}


def tokens(size: tuple[int, ...]) -> int:
    """Read a length."""
    if len(size) != 1 or size[0] < SHORTEST:
        expected = f"a number of tokens from {SHORTEST}, such as 1024"
        raise ValueError(f"--sizes: attention is measured at {expected}, not {'x'.join(map(str, size))}")
    return size[0]


def races() -> list[str]:
    """The names of what mixes a row of tokens, and takes nothing else."""
    layers = [card for card in catalog.members(LAYER) if issubclass(card.entry, Mixer)]
    alone = [card for card in layers if not issubclass(card.entry, AttentionCore)]
    return sorted(card.name for card in [*catalog.members(CORE), *alone])


def choose(names: Sequence[str], causal: bool) -> list[Card]:
    """Return the cores named, or all, that have that form."""
    known = races()
    cards = [catalog.card(name) for name in names or known]
    for card in cards:
        if card.name not in known:
            raise ValueError(f"{card.name} is no attention core; they are {', '.join(known)}")
    return [card for card in cards if causal in card.entry.forms]


class Race:
    """The races of one form in one type; ``failed`` says of a core that cannot run why."""

    def __init__(self, causal: bool, dtype: str, forward: bool, repeats: int, clock: timing.Clock):
        self.causal, self.dtype, self.forward = causal, dtype, forward
        self.repeats, self.clock = repeats, clock
        self.failed: dict[str, str] = {}

    def run(self, cards: Sequence[Card], lengths: Sequence[int]) -> Rows:
        """Race from the shortest to the longest length; return a row for each core and length."""
        done: dict[str, Rows] = {card.name: [] for card in cards}
        for length in lengths:
            for row in self.at(length, cards, done):
                done[row["method"]].append(row)
        for card in cards:
            self._cross(card, done[card.name])
        return [row for rows in done.values() for row in rows]

    def at(self, length: int, cards: Sequence[Card], done: Mapping[str, Rows]) -> Rows:
        """Hold the race of one length."""
        form = "causal" if self.causal else "whole"
        print(f"{form} attention of {length} tokens, {self.dtype}", file=sys.stderr)
        rows, entrants = [], {YARDSTICK: entrant(self._course(catalog.card(YARDSTICK), length), self.forward)[1]}
        for card in cards:
            course, before = self._course(card, length), done[card.name]
            row = {**course.row(form, "forward" if self.forward else "training"), "stopped": too_much(before, length)}
            try:
                if row["stopped"] is None:
                    row["linear"], entrants[card.name] = entrant(course, self.forward)
                rows.append(row)
            except (ValueError, TypeError, RuntimeError) as error:
                self.failed[f"{card.name} {course}"] = str(error).split("\n")[0]
        times = timing.race(entrants, self.repeats, self.clock)
        return [{**row, **verdict_on(row, times, entrants, done[row["method"]])} for row in rows]

    def _course(self, card: Card, length: int) -> Course:
        return Course(card, self.causal, length, self.dtype)

    def _cross(self, card: Card, rows: Rows) -> None:
        """Tell in each row of a linear core where it overtakes softmax, after further, shorter races if need be."""
        points = {row["tokens"]: row["softmax"] for row in rows if row["softmax"] is not None}
        if not points or not rows[0]["linear"]:
            return
        while (least := min(points)) >= 2 * SHORTEST and points[least] > 1:
            points[least // 2] = self.at(least // 2, [card], {card.name: []})[0]["softmax"]
        for row in rows:
            row["overtakes"] = overtaking(points)


def verdict_on(
    row: Mapping[str, Any], times: Mapping[str, timing.Time], entrants: Mapping[str, Entrant], before: Rows
) -> dict:
    """Return what the race says of a core that ran in it."""
    name = row["method"]
    if name not in times:
        return {}
    time, peak = times[name], cost.peak_bytes(entrants[name])
    last = before[-1] if before else {"seconds": None, "peak_bytes": None}
    return {
        "seconds": time.median,
        "low": time.low,
        "high": time.high,
        "rounds": time.rounds,
        "growth": time.median / last["seconds"] if last["seconds"] else None,
        "peak_bytes": peak,
        "peak_growth": peak / last["peak_bytes"] if last["peak_bytes"] else None,
        "softmax": times[YARDSTICK].median / time.median,
    }


def entrant(course: Course, forward: bool) -> tuple[bool, Entrant]:
    """Return whether the core claims to be linear, and the call to time."""
    core, inputs = make(course)
    if forward:
        return core.linear, Entrant(torch.no_grad()(lambda: core(*inputs)))
    sent = torch.randn_like(core(*inputs))
    variables = [*(x.requires_grad_() for x in inputs), *core.parameters()]
    return core.linear, Entrant(lambda: torch.autograd.grad(core(*inputs), variables, sent, allow_unused=True))


def make(course: Course) -> tuple[Any, list[Tensor]]:
    """Build the core and draw its inputs: whatever their layout, tokens are the axis before the last."""
    card, (dtype, kept) = course.card, cases.DTYPES[course.dtype]
    fitting = card.entry.fitting(course.tokens)
    own = {"heads": course.heads} if "heads" in card.example else {}
    form = {"causal": course.causal} if len(card.entry.forms) > 1 else {}
    torch.manual_seed(0)
    core = card.small(course.width, **{**own, **form, **fitting}).to(kept)
    sizes = {"N": 1, "heads": course.heads, "C": course.width}
    specs = [layout.sized(-2, course.tokens) for layout in layouts(card, optional=False)]
    return core, [layout.draw(sizes, dtype=dtype) for layout in specs]


def too_much(before: Rows, length: int) -> str | None:
    """Say what a call would need beyond the budget, judged by the core's last length, or None.

    >>> too_much([{"tokens": 4, "seconds": 3.0, "peak_bytes": 8, "linear": False}], 8)
    'would take about 12 s'
    """
    last = next((row for row in reversed(before) if row["seconds"] is not None), None)
    if last is None:
        return None
    growth = (length / last["tokens"]) ** (1 if last["linear"] else 2)
    if last["seconds"] * growth > SECONDS:
        return f"would take about {last['seconds'] * growth:.0f} s"
    if last["peak_bytes"] * growth > BYTES:
        return f"would hold about {last['peak_bytes'] * growth / 2**30:.1f} GiB"
    return None


def overtaking(points: Mapping[int, float]) -> str:
    """Say from how many tokens on the ratio of the other's time to one's own stays above 1.

    >>> overtaking({256: 0.5, 512: 2.0, 1024: 4.0})
    '362'
    >>> overtaking({256: 1.5, 512: 3.0}), overtaking({256: 0.2, 512: 0.4})
    ('below 256', 'beyond 512')
    """
    lengths = sorted(points)
    behind = [index for index, length in enumerate(lengths) if points[length] <= 1]
    if not behind:
        return f"below {lengths[0]}"
    if behind[-1] == len(lengths) - 1:
        return f"beyond {lengths[-1]}"
    least, next_one = lengths[behind[-1]], lengths[behind[-1] + 1]
    low, high = math.log(points[least]), math.log(points[next_one])
    return f"{least * (next_one / least) ** (low / (low - high)):.0f}"
