"""Make deliberate one-line mistakes, run the tests that reach each one, and tell which mistakes no test sees.

    python tools/mutate.py                                   # in the files that differ from main
    python tools/mutate.py src/normkit/statistics.py         # in these
    python tools/mutate.py --all --mutants 300 --seed 0      # drawn from all of the package

Tests are collected once. For each mistake a process forks, swaps the code of what is loaded, and runs the tests that
call the function, cheapest first, until one fails or its time is up. Which tests call what is recorded once, and anew
with ``--record``. Mistakes are another comparison, operator, number, truth value or default, arguments that change
places, and a check, a call, a keyword or a ``not`` left out.

What a card says of a method is data for the tests and is left alone, and so are texts, types, and all that runs at
import but numbers with a name. Tests that compile, export or start processes are left out, for their time.
"""

from __future__ import annotations

import argparse
import ast
import copy
import cProfile
import gc
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "normkit"
RECORD = ROOT / ".mutate.jsonl"
GOOD = 0.92  # the share of mistakes that tests are to see
LEFT_OUT = (
    *("compile", "instances", "export", "onnx", "process", "copies", "distributed", "ray", "spawn", "import_time"),
    *("lab/test_compare", "lab/test_engines", "lab/test_damage"),
)
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
DROPPED = {"detach", "double", "float", "abs", "square", "sqrt", "clamp", "unsqueeze"}
Change = tuple[ast.AST, "ast.AST | None", str]  # what stands there, what shall, the function's qualified name


class Mutant:
    """A mistake: where it is, what it was and what it is now, and the source with it."""

    def __init__(self, path: Path, source: str, change: Change):
        node, new, self.scope = change
        self.path, self.line = path, node.lineno  # type: ignore[attr-defined]
        before, after = ast.unparse(node), "pass" if new is None else ast.unparse(new)
        self.what = f"{before.splitlines()[0]}  ->  {after.splitlines()[0]}"
        text = after if isinstance(node, ast.stmt) else f"({after})"
        lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset  # type: ignore[attr-defined]
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset  # type: ignore[attr-defined]
        self.source = (source.encode()[:start] + text.encode() + source.encode()[end:]).decode()

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} in {self.scope or 'the module'}: {self.what}"


def drawn(paths: list[Path], number: int, seed: int) -> tuple[list[Mutant], int]:
    """As many mistakes that compile, drawn from the files, and how many there are to draw from."""
    every = [(path, change) for path in paths for change in _changes(ast.parse(path.read_text()), "")]
    random.Random(seed).shuffle(every)
    made = (Mutant(path, path.read_text(), change) for path, change in every)
    return list(itertools.islice(filter(_compiles, made), number)), len(every)


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _changes(node: ast.AST, scope: str) -> Iterator[Change]:
    """Walk all that runs inside functions, and named numbers outside."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{scope}.{child.name}" if scope else child.name
            if isinstance(child, ast.FunctionDef):
                defaults = [d for d in (*child.args.defaults, *child.args.kw_defaults) if d is not None]
                body = child.body[1:] if ast.get_docstring(child) is not None else child.body
                for part in [*defaults, *body]:
                    yield from _inside(part, inside)
            yield from _changes(child, inside)
        elif isinstance(child, ast.Assign) and isinstance(child.value, ast.Constant):
            yield from _inside(child.value, scope)


def _inside(node: ast.AST, scope: str) -> Iterator[Change]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    for new in _wrong(node):
        yield node, new, scope
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and name != "annotation":
                yield from _inside(part, scope)


def _wrong(node: ast.AST) -> Iterator[ast.AST | None]:
    """What could stand in a node's place by mistake; None leaves a statement out."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield _with(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPS:
        yield _with(node, op=SWAPS[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(_other(node.value))
    elif isinstance(node, ast.Call):
        yield from _wrong_call(node)
    elif isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    elif _refuses(node) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield None


def _wrong_call(node: ast.Call) -> Iterator[ast.AST]:
    if len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield _with(node, keywords=[k for k in node.keywords if k is not keyword])
    if isinstance(node.func, ast.Attribute) and node.func.attr in DROPPED and ast.unparse(node.func.value) != "torch":
        yield node.func.value


def _refuses(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(part, ast.Raise) for part in node.body)


def _with(node: ast.AST, **changed) -> ast.AST:
    new = copy.copy(node)
    for name, value in changed.items():
        setattr(new, name, value)
    return new


def _other(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 10 if value else 1.0


# ---- making a mistake in what is loaded ----


def make(mutant: Mutant) -> bool:
    """Swap the code, the defaults or the named number; False where nothing that is loaded has it."""
    module = next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(mutant.path)), None)
    if module is None:
        return False
    tree = ast.parse(mutant.source)
    if mutant.scope not in functions(tree):
        return _rename(module, mutant, tree)
    old, new = (_codes(compile(text, str(mutant.path), "exec")) for text in (mutant.path.read_text(), mutant.source))
    return _swap(module, mutant.scope, dict(zip(old, new.values(), strict=True)), functions(tree)[mutant.scope])


def functions(tree: ast.AST, scope: str = "") -> dict[str, ast.FunctionDef]:
    """Every function by its qualified name."""
    found: dict[str, ast.FunctionDef] = {}
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{scope}.{child.name}" if scope else child.name
            found |= {inside: child} if isinstance(child, ast.FunctionDef) else {}
            found |= functions(child, inside)
        else:
            found |= functions(child, scope)
    return found


def _codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The code of every function in a file, by its name and first line."""
    found = {}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= {} if part.co_name.startswith("<") else {(part.co_name, part.co_firstlineno): part}
            found |= _codes(part)
    return found


def _swap(module, scope: str, codes: dict[tuple[str, int], types.CodeType], node: ast.FunctionDef) -> bool:
    """Give every living function of the file its new code, and the one of the mistake its new defaults."""
    done = False
    for function in [f for f in gc.get_objects() if isinstance(f, types.FunctionType)]:
        code = function.__code__
        new = codes.get((code.co_name, code.co_firstlineno)) if code.co_filename == module.__file__ else None
        if new is not None and new.co_freevars == code.co_freevars:
            function.__code__ = new
            if function.__qualname__.replace(".<locals>", "") == scope:
                done = True
                _give_defaults(function, node)
            done = done or scope.startswith(function.__qualname__ + ".")  # a function inside it, made when it is called
    return done


def _give_defaults(function: types.FunctionType, node: ast.FunctionDef) -> None:
    def value(expression: ast.expr):
        return eval(compile(ast.Expression(expression), "default", "eval"), function.__globals__)

    if function.__defaults__:
        function.__defaults__ = tuple(map(value, node.args.defaults))
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None and function.__kwdefaults__ is not None:
            function.__kwdefaults__[argument.arg] = value(default)


def _rename(module, mutant: Mutant, tree: ast.Module) -> bool:
    """Set a named number in its module or class, and wherever else in the package it was imported to."""
    owner, body = module, tree.body
    for name in filter(None, mutant.scope.split(".")):
        owner = getattr(owner, name)
        body = next(part.body for part in body if isinstance(part, ast.ClassDef) and part.name == name)
    line = next(part for part in body if isinstance(part, ast.Assign) and part.lineno == mutant.line)
    for name in [target.id for target in line.targets if isinstance(target, ast.Name)]:
        before, value = getattr(owner, name), ast.literal_eval(line.value)
        setattr(owner, name, value)
        others = [m for n, m in sys.modules.items() if n.startswith("normkit") and owner is module]
        for other in [m for m in others if vars(m).get(name) is before]:
            setattr(other, name, value)
    return True


# ---- which tests reach what ----


class Recorder:
    """Note, for each test that passes, how long it took and the functions of the package that it called."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.failed = False
        self.names: dict[str, dict[int, str]] = {}

    def pytest_collection_modifyitems(self, items):
        """Leave out what takes long, or would not see a mistake."""
        items[:] = [item for item in items if not any(word in item.nodeid for word in LEFT_OUT)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Watch one test."""
        self.failed, start, profile = False, time.perf_counter(), cProfile.Profile(builtins=False)
        profile.enable()
        try:
            return (yield)
        finally:
            profile.disable()
            seconds = round(time.perf_counter() - start, 4)
            codes = [entry.code for entry in profile.getstats() if isinstance(entry.code, types.CodeType)]
            names = sorted({name for code in codes if (name := self.name(code))})
            if names and not self.failed:
                print(json.dumps([item.nodeid, seconds, names]), file=self.file, flush=True)

    def pytest_runtest_logreport(self, report):
        """A test that fails sees no mistake."""
        self.failed = self.failed or report.failed

    def name(self, code: types.CodeType) -> str | None:
        """The path and qualified name of a function of the package."""
        if not code.co_filename.startswith(f"{SOURCE}/") or "/contract/" in code.co_filename:
            return None
        if code.co_filename not in self.names:
            found = functions(ast.parse(Path(code.co_filename).read_text()))
            lines = {line: name for name, node in found.items() for line in range(_first(node), node.end_lineno + 1)}  # type: ignore[operator]
            self.names[code.co_filename] = lines
        name = self.names[code.co_filename].get(code.co_firstlineno, "")
        return f"{Path(code.co_filename).relative_to(ROOT)}:{name}"


def _first(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def recorded() -> dict[str, tuple[float, set[str]]]:
    """Every test, its seconds, and what it calls."""
    lines = (json.loads(line) for line in RECORD.read_text().splitlines())
    return {test: (seconds, set(called)) for test, seconds, called in lines}


def reaching(mutant: Mutant, seen: dict[str, tuple[float, set[str]]]) -> list[str]:
    """The tests that call the function, or of a named number any function of the file.

    The cheapest come first, but only two of a test function before all others had their turn.
    """
    file, turns, ranked = f"{mutant.path.relative_to(ROOT)}:", dict[str, int](), []
    whole = mutant.scope not in functions(ast.parse(mutant.path.read_text()))
    for test, (seconds, called) in sorted(seen.items(), key=lambda item: item[1][0]):
        if file + mutant.scope in called or (whole and any(name.startswith(file) for name in called)):
            function = test.partition("[")[0]
            turns[function] = turns.get(function, -1) + 1
            ranked.append((turns[function] // 2, seconds, test))
    return [test for _, _, test in sorted(ranked)]


# ---- running ----


class Hunt:
    """Collect the tests once; for each mutant fork, make the mistake, and run what reaches it until something fails."""

    def __init__(self, chosen: list[Mutant], seen: dict[str, tuple[float, set[str]]], seconds: float):
        self.chosen, self.seen, self.seconds = chosen, seen, seconds
        self.survivors: list[Mutant] = []
        self.sound: set[str] = set()

    def pytest_collection_modifyitems(self, items):
        """Keep the tests of which it is known what they call."""
        items[:] = [item for item in items if item.nodeid in self.seen]

    def pytest_runtestloop(self, session):
        """Try one mutant after the other."""
        items = {item.nodeid: item for item in session.items}
        for number, mutant in enumerate(self.chosen, 1):
            finder = self.finder(mutant, [items[test] for test in reaching(mutant, self.seen) if test in items])
            told = f"found by {finder}" if finder else "NOT SEEN"
            print(f"{number}/{len(self.chosen)} {mutant}\n    {told}", flush=True)
            if not finder:
                self.survivors.append(mutant)
        return True

    def finder(self, mutant: Mutant, items: list) -> str | None:
        """The test that finds a mutant, if one does; one that fails without a mutant too is passed over."""
        found = self.fails(mutant, items)
        while found is not None:
            item = next(item for item in items if item.nodeid == found)
            if found in self.sound or self.fails(None, [item]) is None:
                self.sound.add(found)
                return found
            items = [item for item in items if item.nodeid != found]
            found = self.fails(mutant, items)
        return None

    def fails(self, mutant: Mutant | None, items: list) -> str | None:
        """The first test that fails, crashes or never ends in a process that has the mutant; None if none does."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(self.attempt(mutant, items, writer))
        os.close(writer)
        with open(reader) as told:
            tried = told.read().split("\n")
        _, status = os.waitpid(child, 0)
        return tried[-2] if status else None

    def attempt(self, mutant: Mutant | None, items: list, writer: int) -> int:
        """In the child: 1 if a test fails, else 0. The test that runs is written down, in case it crashes."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        end = time.monotonic() + self.seconds
        if mutant is not None and not make(mutant):
            return 0
        for place, item in enumerate(items):
            if time.monotonic() > end:
                return 0
            os.write(writer, f"{item.nodeid}\n".encode())
            signal.alarm(int(20 + 10 * self.seen[item.nodeid][0]))  # kills what never ends
            following = items[place + 1] if place + 1 < len(items) else None
            if any(report.failed for report in runtestprotocol(item, nextitem=following, log=False)):
                return 1
        return 0


def changed() -> list[Path]:
    """The package's files that differ from main."""
    told = subprocess.run(["git", "diff", "--name-only", "main"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in whole() if str(path.relative_to(ROOT)) in told.stdout.split()]


def whole() -> list[Path]:
    """All of the package but the contract, which is tests."""
    return sorted(path for path in SOURCE.rglob("*.py") if "contract" not in path.relative_to(SOURCE).parts)


def main() -> int:
    """Read the command line, record if need be, hunt, and print the score with its survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=lambda text: Path(text).resolve())
    parser.add_argument("--all", action="store_true", help="draw from the whole package")
    parser.add_argument("--mutants", type=int, default=100, help="how many mistakes, drawn by seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for the tests of one mistake")
    parser.add_argument("--record", action="store_true", help="only record, anew, which tests call what")
    options = parser.parse_args()
    words = [str(ROOT / "tests"), str(SOURCE / "contract"), "-q", "-p", "no:cacheprovider"]
    if options.record:
        with RECORD.open("w") as file:
            return pytest.main(words, plugins=[Recorder(file)])
    if not RECORD.exists():  # in a process of its own: what tests leave behind must not be forked
        subprocess.run([sys.executable, __file__, "--record"], cwd=ROOT)
    paths = whole() if options.all else options.files or changed()
    chosen, count = drawn(paths, options.mutants, options.seed)
    hunt = Hunt(chosen, recorded(), options.seconds)
    pytest.main([*words, "-s"], plugins=[hunt])
    share = 1 - len(hunt.survivors) / max(1, len(chosen))
    print(f"\n{share:.1%} of {len(chosen)} mistakes are seen (of {count}, seed {options.seed}); not seen:")
    print(*hunt.survivors, sep="\n")
    return int(share < GOOD)


if __name__ == "__main__":
    sys.exit(main())
