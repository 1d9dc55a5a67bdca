"""Classes that were proven before: what full probing found them to be at several sizes, by the source that it probed.

``known.json`` is written by ``python tools/known.py``. A row holds for a module whose source is that of the row, whose
configuration has the row's form, and whose sizes, stabilizers and momentum lie within what was probed.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from normkit import catalog

FILE = Path(__file__).with_name("known.json")
SIZE = re.compile(r"(?<![\w.+-])([2-9]|[1-9]\d+)(?![\w.])")
LEAST = 8  # the smallest width of a row; smaller numbers are axes, but for those of groups
REAL = re.compile(r"\d+\.\d+|\d+(\.\d+)?e-\d+")
HALF = re.compile(r"torch\.(bfloat16|float16)")
MARK = "_is_hf_initialized"  # what transformers puts on every module of its models
NUMBERS = ("eps", "epsilon", "variance_epsilon", "norm_eps", "momentum")
EPS, MOMENTUM = (1e-12, 1e-2), (1e-4, 0.999)
LETTERS = "abcdefgh"


class Form(NamedTuple):
    """A configuration without its numbers: the words that are left, sizes by their letters, and real numbers."""

    words: Mapping[str, str]
    sizes: Mapping[str, int]
    numbers: Mapping[str, float]


def form(config: Mapping[str, str]) -> Form:
    """Take sizes, stabilizers, momentum, mode and half precision out of a configuration: a proof tries several of each.

    >>> form({"mode ": "True", ".dim": "12", ".eps": "1e-05", "parameter weight": "(12,) torch.float32 cpu"}).words
    {'.dim': 'a', '.eps': 'a number', 'parameter weight': '(a,) torch.float32 cpu'}
    """
    letters: dict[str, str] = {}
    numbers: dict[str, float] = {}
    words: dict[str, str] = {}

    def letter(match: re.Match[str]) -> str:
        if int(match[0]) < LEAST and "group" not in key:
            return match[0]
        return letters.setdefault(match[0], LETTERS[min(len(letters), len(LETTERS) - 1)])

    for key, value in sorted(config.items()):
        if key.startswith("mode ") or key.rpartition(".")[2] == MARK:
            continue
        if key.rpartition(".")[2] in NUMBERS and REAL.fullmatch(value):
            words[key], numbers[key] = "a number", float(value)
        else:
            words[key] = value if value[:1] in "'\"" else HALF.sub("torch.float32", SIZE.sub(letter, value))
    return Form(words, {one: int(size) for size, one in letters.items()}, numbers)


def claim(source: str, config: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what full probing would find a module to be, or None where that was not proven."""
    shape = form(config)
    row = rows().get((source, json.dumps(shape.words, sort_keys=True)))
    return None if row is None else read(row, shape)


def read(row: Mapping[str, Any], shape: Form) -> dict[str, Any] | None:
    """Return what a row says of a module of such sizes and numbers, or None where it does not hold for them."""
    if not _within(row, shape):
        return None
    card = catalog.card(row["name"])
    kwargs: dict[str, Any] = {}
    for name, (kind, what) in row["arguments"].items():
        value = {"size": shape.sizes, "number": shape.numbers}[kind][what] if kind != "constant" else what
        if name in row["always"] or card.signature.parameters[name].default != value:
            kwargs[name] = value
    proven = {key: copy.copy(row[key]) for key in ("name", "error", "evidence", "carried", "behind")}
    return {**proven, "kwargs": kwargs}


def _within(row: Mapping[str, Any], shape: Form) -> bool:
    """Whether numbers are such as were probed: sizes between them, groups that divide, eps and momentum in bounds."""
    (low, high), width, groups = row["widths"], shape.sizes[row["width"]], row["groups"]
    if not low <= width <= high or len(shape.sizes) > 1 + (groups is not None):
        return False
    if groups is not None and (width % (number := shape.sizes[groups]) or not 2 <= number <= width // 4):
        return False
    for key, value in shape.numbers.items():
        low, high = MOMENTUM if key.endswith("momentum") else EPS
        if not low <= value <= high:
            return False
    return True


@functools.cache
def rows() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows by source and form."""
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    return {(row["source"], json.dumps(row["form"], sort_keys=True)): row for row in table}
