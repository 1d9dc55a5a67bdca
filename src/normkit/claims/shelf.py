"""Where claims and their results are: files by room and method, results by room, and the list of what is not tried."""

from __future__ import annotations

import csv
import functools
import importlib
import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import normkit
from normkit import catalog
from normkit.claims.kinds import Claim
from normkit.files import replace_file

HOME = Path(__file__).parent
RESULTS = HOME / "results"
UNTRIED = HOME / "untried.tsv"
NEEDS = {
    "property": "it was not measured",
    "training": "it takes models that are trained and compared",
    "beyond": "no small experiment decides it",
}


class Entry(NamedTuple):
    """A claim of a method; without one, why it is not tried."""

    method: str
    room: str
    name: str
    kind: str
    says: str
    claim: Claim | None = None
    why: str = ""


class Result(NamedTuple):
    """The numbers of a claim and of its control, a draw each, and the processor's seconds."""

    numbers: list[float]
    control: list[float]
    seconds: float


@functools.cache
def places() -> dict[str, str]:
    """The room of every method that has a file of claims; nothing is imported."""
    return {path.stem.replace("_", "-"): path.parent.name for path in sorted(HOME.glob("*/[!_]*.py"))}


@functools.cache
def written(method: str) -> tuple[Entry, ...]:
    """Return the claims of a method's file."""
    room = places()[method]
    module = importlib.import_module(f"normkit.claims.{room}.{method.replace('-', '_')}")
    names = [claim.name for claim in module.CLAIMS]
    if len(set(names)) < len(names):
        raise ValueError(f"{module.__name__}: two claims have one name: {names}")
    return tuple(Entry(method, room, claim.name, claim.kind, claim.says, claim) for claim in module.CLAIMS)


@functools.cache
def unwritten() -> tuple[Entry, ...]:
    """Return the claims of papers that are not tried, each with the reason."""
    with UNTRIED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(
        Entry(row["method"], row["room"], "", row["kind"], row["claim"], None, f"{NEEDS[row['kind']]}: {row['needs']}")
        for row in rows
    )


def every(kind: str | None = None) -> list[Entry]:
    """Return all claims, those that are not tried at the end."""
    entries = [entry for method in places() for entry in written(method)]
    return [entry for entry in (*entries, *unwritten()) if kind in (None, entry.kind)]


@functools.cache
def methods() -> tuple[str, ...]:
    """Return the names of all methods with claims, tried or not."""
    return tuple(sorted({*places(), *(entry.method for entry in unwritten())}))


def claims_of(name: str) -> list[Entry]:
    """Return the claims of one method, by any name of it."""
    names = methods()
    if name not in names:
        method = catalog.find(name).card.name
        if method not in names:
            raise ValueError(f"no claim of {method}'s paper is in the list")
        name = method
    own = written(name) if name in places() else ()
    return [*own, *(entry for entry in unwritten() if entry.method == name)]


@functools.cache
def beds() -> tuple[Entry, ...]:
    """Return what beds must see, an entry each."""
    from normkit.claims.beds import BEDS

    return tuple(
        Entry(bed.name, "beds", known.name, known.kind, known.says, known) for bed in BEDS for known in bed.known
    )


def source(entry: Entry) -> str:
    """Return where a claim is from: its own source, else the method's paper."""
    own = "" if entry.claim is None else entry.claim.source
    return own or (catalog.card(entry.method).paper if entry.method in catalog.methods() else "")


def stored(entry: Entry) -> Result | None:
    """Return the stored numbers of a claim, unless they were measured for another bound, or on another bed."""
    kept = _room(entry.room).get("claims", {}).get(entry.method, {}).get(entry.name)
    if kept is None or entry.claim is None or kept["wanted"] != str(entry.claim.wanted):
        return None
    if kept.get("bed", "") != key(entry):
        return None
    return Result([float(x) for x in kept["numbers"]], [float(x) for x in kept["control"]], kept["seconds"])


def key(entry: Entry) -> str:
    """The hash of the bed that a claim was measured on, or empty."""
    own = entry.method if entry.room == "beds" else entry.claim.bed if entry.claim else ""
    if not own:
        return ""
    from normkit.claims.beds import BEDS

    return next(bed.key for bed in BEDS if bed.name == own)


def origin(room: str) -> str:
    """Return in a line where a room's stored results come from."""
    kept = _room(room)
    return f"normkit {kept['normkit']} at {kept['commit']}, torch {kept['torch']}" if kept else ""


@functools.cache
def _room(room: str) -> dict[str, Any]:
    return _read(RESULTS / f"{room}.json")


def _read(path: Path) -> dict[str, Any]:
    """Read a room's results, none where there is no file."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, and measure again") from None


def store(results: Iterable[tuple[Entry, Result]], folder: Path) -> list[Path]:
    """Write a file a room; claims that were not measured now keep their numbers."""
    rooms: dict[str, dict[str, dict[str, Any]]] = {}
    for entry, result in results:
        rooms.setdefault(entry.room, {}).setdefault(entry.method, {})[entry.name] = _row(entry, result)
    folder.mkdir(parents=True, exist_ok=True)
    return [_written(folder / f"{room}.json", methods) for room, methods in sorted(rooms.items())]


def _row(entry: Entry, result: Result) -> dict[str, Any]:
    assert entry.claim is not None
    short = {"numbers": result.numbers, "control": result.control}
    return {
        "wanted": str(entry.claim.wanted),
        **{key: [f"{number:.6g}" for number in numbers] for key, numbers in short.items()},
        "seconds": round(result.seconds, 3),
        **({"bed": key(entry)} if key(entry) else {}),
    }


def _written(path: Path, methods: dict[str, dict[str, Any]]) -> Path:
    before = _read(path).get("claims", {})
    claims = {name: {**before.get(name, {}), **methods.get(name, {})} for name in sorted({*before, *methods})}
    about = {"normkit": normkit.__version__, "commit": _commit(), "torch": torch.__version__,
             "python": platform.python_version(), "machine": platform.machine()}  # fmt: skip
    rows = ",\n".join(
        f'  {json.dumps(name)}: {{\n{_lines(own)}\n  }}' for name, own in claims.items()
    )  # fmt: skip
    head = json.dumps(about, indent=1)[:-2]
    replace_file(path, f'{head},\n "claims": {{\n{rows}\n }}\n}}\n')
    _room.cache_clear()
    return path


def _lines(claims: dict[str, Any]) -> str:
    return ",\n".join(f"   {json.dumps(name)}: {json.dumps(row)}" for name, row in claims.items())


@functools.cache  # before results are written, which would make the tree another
def _commit() -> str:
    """The commit of the checkout that the package lies in, or none."""
    words = ["git", "-C", str(HOME), "describe", "--always", "--dirty", "--abbrev=10", "--exclude", "*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
