"""Kill commands that write, at random points, and look whether anything is lost and the numbers come out the same.

    python tools/kills.py                # 20 points of each command; 1 where anything went wrong
    python tools/kills.py --points 3 --only fit fold

Each command runs in a process of its own, forked from this one once everything is imported, in a folder of its own. It
gets SIGKILL after a random time. Then what was there before must be there, whole; what the command writes must be whole
or not there; and the same command, run again, must end with the files of an unbroken run and leave no others.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

import normkit as nk
from normkit import cli, text
from normkit.watching import load

NAMES = "id,name\n" + "".join(f"{at},{word}{at % 7} {word[::-1]}\n" for at, word in enumerate("abcdefgh" * 60))
MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    parts = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)) for _ in range(4)]
    for part in parts:
        nn.init.uniform_(part[1].weight, 0.5, 2)
    return nn.Sequential(*parts)
"""


class Case(NamedTuple):
    """A command: what it needs, how it is run, and what it leaves, without times.

    ``prepare`` fills a folder; ``run`` runs in it; ``left`` returns what it has written, None where there is nothing,
    and raises where that is not whole; ``kept`` returns what must survive whatever happens.
    """

    prepare: Callable[[], Any]
    run: Callable[[], Any]
    left: Callable[[], Any]
    kept: Callable[[], Any] = lambda: None


def _files(*names: str) -> dict[str, bytes] | None:
    """The content of files that are there, of folders all that is in them."""
    found = {}
    for name in names:
        paths = sorted(Path(name).rglob("*")) if Path(name).is_dir() else [Path(name)]
        found |= {str(path): path.read_bytes() for path in paths if path.is_file()}
    return found or None


def _command(*words: str) -> Callable[[], Any]:
    def run() -> None:
        if cli.main(list(words)) not in (0, None):
            raise RuntimeError(" ".join(words))

    return run


def _table() -> None:
    draw = random.Random(0)
    Path("t.csv").write_text("a,b\n" + "".join(f"{draw.gauss(0, 1)},{draw.gauss(0, 1)}\n" for _ in range(200)))


def _fit() -> Any:
    """What fit has written: the flow's densities, the samples, and the results without their times."""
    found: dict[str, Any] = {}
    out = Path("out")
    if (path := out / "affine-coupling.pt").is_file():
        found["flow"] = nk.density.load(path).log_prob(torch.ones(1, 2)).item()
    if (path := out / "samples.csv").is_file():
        found["samples"] = path.read_bytes()
    if (path := out / "results.json").is_file():
        found["results"] = [{**one, "seconds": 0} for one in json.loads(path.read_text())]
    if (path := out / "index.html").is_file():
        found["page"] = path.read_text().rstrip().endswith("</html>")
    return found or None


def _names() -> None:
    Path("names.csv").write_text(NAMES)
    Path("mine.csv").write_text("x\n" + "".join(f"{word}{at % 7} {word}\n" for at, word in enumerate("abcdefgh" * 9)))


def _reviewed() -> None:
    _names()
    text.Normalizer().fit("names.csv").save("norm")
    Path("mine-review.csv").write_text("text,count,right_id,who\nold text,1,3,Ann\n")


def _filled_in() -> Any:
    with Path("mine-review.csv").open(newline="") as file:
        return next(row for row in csv.DictReader(file) if row["right_id"])["who"]


def _module() -> None:
    Path("mine_model.py").write_text(MODEL)


def _watched() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nk.watch(model, optimizer, every=1, to="seen"):
        for _ in range(40):
            optimizer.zero_grad()
            model(torch.ones(2, 16)).square().sum().backward()
            optimizer.step()


def _earlier() -> None:
    Path("seen").mkdir()
    _watched()
    Path("before").write_bytes(Path("seen/watch.jsonl").read_bytes())


def _rows() -> Any:
    """The rows of the last run; half a run is none that has ended."""
    content, before = Path("seen/watch.jsonl").read_bytes(), Path("before").read_bytes()
    found = load("seen/watch.jsonl")
    ended = b'"end"' in content[len(before) :].rstrip().rpartition(b"\n")[2]
    return (found.steps, found.table.tolist()) if ended else None


def _rows_before() -> Any:
    return Path("seen/watch.jsonl").read_bytes().startswith(Path("before").read_bytes())


FIT = ("fit", "t.csv", "--flow", "affine-coupling", "--steps", "60", "--hidden", "8", "--samples", "50", "-o", "out")
CASES = {
    "fit": Case(_table, _command(*FIT), _fit, lambda: _files("t.csv")),
    "text fit": Case(_names, _command("text", "fit", "names.csv", "-o", "norm"), lambda: _files("norm")),
    "text map": Case(
        _reviewed,
        _command("text", "map", "norm", "mine.csv", "--column", "x"),
        lambda: _files("mine-mapped.csv") and _files("mine-mapped.csv", "mine-review.csv"),
        _filled_in,
    ),
    "swap": Case(
        _module,
        _command("swap", "mine_model:make", "layernorm=rmsnorm", "--input", "2x64", "-o", "out"),
        lambda: _files("out"),
    ),
    "fold": Case(_module, _command("fold", "mine_model:make", "--input", "2x64", "-o", "out"), lambda: _files("out")),
    "quantize": Case(
        _module, _command("quantize", "mine_model:make", "--bits", "4", "-o", "out"), lambda: _files("out")
    ),
    "watch": Case(_earlier, _watched, _rows, _rows_before),
}


@contextlib.contextmanager
def _silent() -> Any:
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        yield


def forked(run: Callable[[], Any], seconds: float | None = None) -> int:
    """Run in a process of its own, which is killed after some time; return its status, negative if it was killed."""
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException), open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
            torch.manual_seed(0)
            run()
            status = 0
        os._exit(status)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def folder(case: Case, prepared: bool = True) -> Any:
    """Work in a folder that has what a command needs."""
    there = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            if prepared and forked(case.prepare):
                raise RuntimeError("what the command needs could not be made")
            yield
        finally:
            os.chdir(there)


def wrong(case: Case, points: int, draw: random.Random) -> list[str]:
    """Kill a command at so many points; return what went wrong, and at which time."""
    with folder(case):
        kept, began = case.kept(), time.perf_counter()
        if forked(case.run):
            return ["unbroken, it fails"]
        whole, left = time.perf_counter() - began, case.left()
        names = sorted(_files(".") or ())
    found = []
    for _ in range(points):
        with folder(case):
            seconds = draw.uniform(0.02, 1) * whole
            forked(case.run, seconds)
            found += [f"{seconds:.3f} s: {why}" for why in _faults(case, kept, left, names)]
    return found


def _faults(case: Case, kept: Any, left: Any, names: list[str]) -> list[str]:
    faults = []
    try:
        if case.kept() != kept:
            faults.append("what was there is lost")
        half = case.left()
    except Exception as error:
        return [*faults, f"what it left cannot be read: {error}"]
    parts = isinstance(left, dict) and isinstance(half, dict)
    if half is not None and half != left and not (parts and all(left.get(name) == own for name, own in half.items())):
        faults.append("what it left is neither whole nor not there")
    if half != left and forked(case.run):
        return [*faults, "it cannot be run again"]
    if case.left() != left or case.kept() != kept:
        faults.append("run again, it gives something else")
    others = sorted({*(_files(".") or ())} - {*names})
    if others and half != left:
        faults.append(f"it leaves {', '.join(others)}")
    return faults


def main(words: list[str] | None = None) -> int:
    """Kill what was named, and print a line of each."""
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--points", type=int, default=20, metavar="N", help="kills of each command (20)")
    top.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="COMMAND", help="those alone")
    top.add_argument("--seed", type=int, default=0, metavar="N", help="of the points (0)")
    options = top.parse_args(words)
    failed = 0
    for name in options.only:
        with folder(CASES[name], prepared=False), _silent():
            CASES[name].prepare()  # once in this process, so that those that are forked import nothing
            CASES[name].run()
        faults = wrong(CASES[name], options.points, random.Random(options.seed))
        failed += bool(faults)
        print(f"{name}: {options.points} kills, {len(faults)} faults", *faults, sep="\n  ", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
