"""Make deliberate one-line mistakes, run the tests that reach each one, and tell which mistakes no test sees.

    python tools/mutate.py                                   # in the files that differ from main
    python tools/mutate.py src/normkit/statistics.py         # in these
    python tools/mutate.py --all --mutants 300 --seed 0      # drawn from all of the package
    python tools/mutate.py --all --mutants 300 --go-on       # what was tried before is not tried again
    python tools/mutate.py --all --mutants 300 --again       # nor is what was seen; what was not, is

A mistake is drawn by its text and the function it is in, not by its line, so that the rest of the draw stays as it is
when a file changes; a verdict on a mistake holds until its file changes. One that cannot be made makes room for the
next.
Tests are collected once, by a process that forks into some that try mistakes. For each mistake one of these forks,
swaps the code of what is loaded, and runs the tests that reach the file until one fails or its time is up: near and
cheap ones first, by who imports what, whom a test names and where it lies. That is read off, not run, so that a test
may be missed, and the share that is seen is at least the one printed. Where `traced.py` has written down what tests
run, those that run the function come first. What no test sees is shown to mypy, and counted apart.
Mistakes are another comparison, operator, number, truth value or default, arguments that change places, and a check, a
call, a keyword or a ``not`` left out.

What a card says of a method is data for the tests and is left alone, and so are texts, looks, types, seeds, the signs
of whole numbers, detached values in comparisons, whether `zip` is strict, which only speaks where other code is wrong,
and all that runs at import but numbers with a name.
Tests that compile, export or start processes take long, and come late. Another Python that a test starts has the
mistake too: it imports the package from folders of links, in which the one file is the mistaken one.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import gc
import hashlib
import importlib
import inspect
import itertools
import json
import linecache
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import types
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "normkit"
VERDICTS = ROOT / ".mutate.verdicts"  # a line for each mistake that was tried
COSTS = ROOT / ".mutate.costs"  # what each test took the last time
TRACES = ".mutate.ran.*"  # what each test ran, by `traced.py`
ASKED = "NORMKIT_CHECK"  # the methods of whose contract the cases are taken
EVERYWHERE = ("layernorm", "rmsnorm", "batchnorm", "groupnorm", "dyt", "softmax", "spectral-norm", "adamp", "nkd")
DEFAULTS = "tests/house/test_answers.py::test_a_method_takes_what_is_written_down"  # it has those of all methods
SIGNATURES = "tests/house/test_api_page.py::test_names_arguments_and_defaults_are_those_that_were_written_down"
OWNERS = "tests/house/test_checks.py::test_an_error_begins_with_whose_argument_it_is_and_then_names_the_argument"
NAMED_FIRST = ("self,", "owner,", "NAME,", "'", "type(self)")  # whose argument is checked, which that test looks for
UNSEEN, ABSENT = "NOT SEEN", "cannot be made"  # ABSENT is what nothing that is loaded has, or what runs once, at import
LINES, FEW = 4, 60  # that end with a mistake's, and tests that may have a word of these for it to be rare
OWN = 8  # tests with a case of a file's name: of more, as of `rmsnorm`, most are of something else
CALLERS = 6  # methods whose contract is run for a helper's mistake
UNFORKED = {"ray", "wandb", "pyarrow", "datasets", "duckdb"}  # start threads, which a fork would not have
NOWHERE = 3  # how a process ends in which a mistake cannot be made
GOOD = 0.92  # the share of mistakes that tests, or types, are to see
LATE = 5.0  # seconds that a test is expected to take whose name has one of these words
LONG = (
    *("compile", "instances", "export", "onnx", "process", "copies", "distributed", "_ray_", "spawn", "import_time"),
    *("lab/test_compare", "lab/test_engines", "lab/test_damage"),
)
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMMUTE = {
    *("max", "min", "maximum", "minimum", "logaddexp", "isclose", "hypot", "gcd", "promote_types"),
    *("dot", "equal", "distance", "mse_loss", "cosine_similarity"),
}
TURNS = {"transpose", "swapaxes"}
DROPPED = {"detach", "double", "float", "abs", "square", "sqrt", "clamp", "unsqueeze"}
SEEDED = {"manual_seed", "default_rng", "Random"}
LOOKS = {"help", "metavar", "cmap", "interpolation", "fontsize", "dpi"}  # what a user sees in them, no test can judge
Change = tuple[ast.AST, "ast.AST | None", str]  # the code as it is, as it shall be, the function's qualified name


class Mutant:
    """A mistake: where it is, what it was and what it is now, and the source with it."""

    def __init__(self, path: Path, source: str, change: Change, key: str):
        node, new, self.scope = change
        self.path, self.line, self.column, self.original = path, node.lineno, node.col_offset, source  # type: ignore[attr-defined]
        before, after = _texts(node, new)
        self.what = f"{before.splitlines()[0]}  ->  {after.splitlines()[0]}"
        text = after if isinstance(node, ast.stmt) else f"({after})"
        lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset  # type: ignore[attr-defined]
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset  # type: ignore[attr-defined]
        self.source = (source.encode()[:start] + text.encode() + source.encode()[end:]).decode()
        self.of_default = hasattr(node, "is_default")
        self.of_owner = isinstance(node, ast.Call) and before.partition("(")[2].startswith(NAMED_FIRST)
        self.name = f"{_digest(key)} in {_digest(source)}"  # by which its verdict is looked up

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}:{self.column} in {self.scope or 'the module'}: {self.what}"


def drawn(paths: list[Path], seed: int) -> tuple[Iterator[Mutant], int]:
    """The mistakes that compile, in an order of chance that no other mistake has a part in, and their number."""
    ranked, sources = [], {path: path.read_text() for path in paths}
    for path, source in sources.items():
        times = Counter[str]()
        for change in _changes(ast.parse(source), ""):
            key = "\n".join([str(path.relative_to(ROOT)), change[2], *_texts(*change[:2])])
            times[key] += 1
            key = f"{key}\n{times[key]}"
            ranked.append((_digest(f"{seed}\n{key}"), key, path, change))
    ranked.sort(key=lambda entry: entry[:2])
    made = (Mutant(path, sources[path], change, key) for _, key, path, change in ranked if not _alike(*change[:2]))
    return filter(_compiles, made), len(ranked)


def _texts(node: ast.AST, new: ast.AST | None) -> tuple[str, str]:
    """The code as it is and as it shall be; what takes the place of a call of `super` must close over the same."""
    before = ast.unparse(node)
    nothing = "__class__" if "super()" in before else "pass"
    return before, nothing if new is None else ast.unparse(new)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _alike(node: ast.AST, new: ast.AST | None) -> bool:
    """Whether a change is none: the same again, a text or a look, or a detached value where no gradient is taken."""
    if new is not None and ast.unparse(node) == ast.unparse(new):
        return True
    if not isinstance(node, ast.Call):
        return False
    if isinstance(new, ast.Call) and ast.unparse(node.func) == ast.unparse(new.func):
        gone = {word.arg for word in node.keywords} - {word.arg for word in new.keywords}
        flags = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and str(a.value).startswith("-")]
        return bool(gone & LOOKS) or (not gone and len(flags) == 2)
    return hasattr(node, "without_gradients") and isinstance(node.func, ast.Attribute) and node.func.attr == "detach"


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
                if any("no_grad" in ast.unparse(decorator) for decorator in child.decorator_list):
                    _without_gradients(child)
                body = child.body[1:] if ast.get_docstring(child) is not None else child.body
                for part in defaults:
                    part.is_default = True  # type: ignore[attr-defined]
                for part in [*defaults, *body]:
                    yield from _inside(part, inside)
            yield from _changes(child, inside)
        elif isinstance(child, ast.Assign) and isinstance(child.value, ast.Constant):
            yield from _inside(child.value, scope)


def _without_gradients(node: ast.AST) -> None:
    for part in ast.walk(node):
        part.without_gradients = True  # type: ignore[attr-defined]


def _inside(node: ast.AST, scope: str) -> Iterator[Change]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Compare):  # what is true or false has none
        _without_gradients(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        node = _with(node, keywords=[])
    if isinstance(node, ast.Call) and _begins_chance(node):
        node = _with(node, args=[])
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
        whole = type(getattr(node.operand, "value", None)) is int  # such as an axis, from the front often the same one
        yield from () if whole else (node.operand,)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(_other(node.value))
    elif isinstance(node, ast.Call):
        yield from _wrong_call(node)
    elif isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    elif _refuses(node) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield None


def _wrong_call(node: ast.Call) -> Iterator[ast.AST]:
    name = ast.unparse(node.func).rpartition(".")[2]
    commutes = name in COMMUTE or (name in TURNS and len(node.args) == 2)  # of three, the first is what is turned
    if len(node.args) > 1 and not commutes and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield _with(node, keywords=[k for k in node.keywords if k is not keyword])
    if isinstance(node.func, ast.Attribute) and node.func.attr in DROPPED and ast.unparse(node.func.value) != "torch":
        yield node.func.value


def _begins_chance(call: ast.Call) -> bool:
    """Whether a call sets a seed that is a number: any other is as good."""
    name = ast.unparse(call.func).rpartition(".")[2]
    return name in SEEDED and len(call.args) == 1 and isinstance(call.args[0], ast.Constant)


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
    old, new = (_codes(compile(text, str(mutant.path), "exec")) for text in (mutant.original, mutant.source))
    read = Path.read_text
    Path.read_text = lambda path, *args, **own: (  # type: ignore[method-assign]  # for tests that read the source
        mutant.source if path == mutant.path else read(path, *args, **own)
    )
    # Triton's interpreter reads the source too; without a time it is not looked for on disk again
    linecache.cache[str(mutant.path)] = (0, None, mutant.source.splitlines(keepends=True), str(mutant.path))
    return _swap(module, mutant.scope, dict(zip(old, new.values(), strict=True)), functions(tree)[mutant.scope])


def functions(tree: ast.AST, scope: str = "") -> dict[str, ast.FunctionDef]:
    """Every function by its qualified name."""
    named: dict[str, ast.FunctionDef] = {}
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{scope}.{child.name}" if scope else child.name
            named |= {inside: child} if isinstance(child, ast.FunctionDef) else {}
            named |= functions(child, inside)
        else:
            named |= functions(child, scope)
    return named


def _codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The code of every function in a file, by its name and first line."""
    codes = {}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            codes |= {} if part.co_name.startswith("<") else {(part.co_name, part.co_firstlineno): part}
            codes |= _codes(part)
    return codes


def _swap(module, scope: str, codes: dict[tuple[str, int], types.CodeType], node: ast.FunctionDef) -> bool:
    """Give every living function of the file its new code, and the one of the mistake its new defaults."""
    done = False
    for function in living()[module.__file__]:
        code = function.__code__
        new = codes.get((code.co_name, code.co_firstlineno))
        if new is not None and new.co_freevars == code.co_freevars:
            function.__code__ = new
            if function.__qualname__.replace(".<locals>", "") == scope:
                done = True
                if "__wrapped__" not in vars(function):  # else it has the name alone
                    _give_defaults(function, node)
            done = done or scope.startswith(function.__qualname__ + ".")  # a function inside it, made when it is called
    return done


@functools.cache
def living() -> dict[str, list[types.FunctionType]]:
    """Every function by its file. Looked for before a fork: a child that looks at all objects copies all memory."""
    functions_of_file: dict[str, list[types.FunctionType]] = defaultdict(list)
    gc.unfreeze()  # what the tests' configuration, or a module as it was imported, has set aside
    for function in [f for f in gc.get_objects() if type(f) is types.FunctionType]:
        functions_of_file[function.__code__.co_filename].append(function)
    return functions_of_file


def _give_defaults(function: types.FunctionType, node: ast.FunctionDef) -> None:
    """Give a function new defaults, and every signature that a wrapper keeps of it."""

    def value(expression: ast.expr):
        return eval(compile(ast.Expression(expression), "default", "eval"), function.__globals__)

    changed: dict[str, object] = {}
    positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][-len(node.args.defaults) :]
    named = zip([a.arg for a in node.args.kwonlyargs], node.args.kw_defaults, strict=True)
    for name, default in [*zip(positional, node.args.defaults, strict=False), *((n, d) for n, d in named if d)]:
        old, new = inspect.signature(function, follow_wrapped=False).parameters[name].default, value(default)
        if (type(old), repr(old)) != (type(new), repr(new)):
            changed[name] = new
    if function.__defaults__:
        was = zip(positional, function.__defaults__, strict=True)
        function.__defaults__ = tuple(changed.get(name, old) for name, old in was)
    if function.__kwdefaults__:
        function.__kwdefaults__ |= {name: new for name, new in changed.items() if name in function.__kwdefaults__}
    for wrapper in wrappers().get(function, []):
        for signature in _signatures(wrapper):
            parameters = signature.parameters.items()
            new = {name: p.replace(default=changed[name]) if name in changed else p for name, p in parameters}
            signature._parameters = types.MappingProxyType(new)  # type: ignore[attr-defined]


@functools.cache
def wrappers() -> dict[types.FunctionType, list[types.FunctionType]]:
    """Every function that stands in another's place, by the one that it stands for."""
    standing: dict[types.FunctionType, list[types.FunctionType]] = defaultdict(list)
    for function in itertools.chain(*living().values()):
        inner = function
        while type(inner := vars(inner).get("__wrapped__")) is types.FunctionType:
            standing[inner].append(function)
    return standing


def _signatures(function: types.FunctionType) -> list[inspect.Signature]:
    """The signatures that a function keeps."""
    kept = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    kept.append(vars(function).get("__signature__"))
    return [value for value in kept if isinstance(value, inspect.Signature)]


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

IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n;]+)", re.MULTILINE)


@functools.cache
def imports(text: str) -> list[tuple[str, list[str]]]:
    """The modules that a text imports from, each with the names; "" with modules that it imports whole.

    Read off the lines, which takes a tenth of the time of a tree; a line that looks like one counts. What lies beside
    the text is named without its dots.

    >>> imports("import ast, numpy as np\\nfrom a.b import (  # why\\n    c as d,\\n    e,\\n)\\nfrom . import f")
    [('', ['ast', 'numpy']), ('a.b', ['c', 'e']), ('', ['f'])]
    """
    modules = []
    for module, names in IMPORT.findall(text):
        plain = re.sub(r"#.*", "", names).strip("() \t\n")
        modules.append((module.lstrip("."), [part.split()[0] for part in plain.split(",") if part.strip()]))
    return modules


class Reach:
    """How far a file of the package is from a test: 0 if the test names or imports it, 1 if it does what imports it."""

    def __init__(self, paths: list[Path]):
        texts = {path: path.read_text() for path in paths}
        self.names: dict[str, set[Path]] = {}  # of methods, classes and functions
        self.methods: dict[str, Path] = {}
        self.importers: dict[Path, set[Path]] = {path: set() for path in paths}
        for path, text in texts.items():
            tree = ast.parse(text)
            self.methods |= dict.fromkeys(_methods(tree), path)
            for name in [*_methods(tree), *_defined(tree)]:
                self.names.setdefault(name, set()).add(path)
            for other in self.imported(text):
                self.importers.get(other, set()).add(path)
        self.things = {**_members(texts), **self.methods}  # all that the contract is asked of

    def imported(self, text: str) -> set[Path]:
        """The files of the package that a text imports, be it inside a function."""
        names = set[str]()
        for module, parts in imports(text):
            names |= {below if module and _file(below := f"{module}.{part}") else module or part for part in parts}
        return {path for name in names - {"normkit"} if (path := _file(name))}

    def distances(self, path: Path) -> dict[Path, int]:
        """How many imports each file is away from one."""
        far, edge = {path: 0}, [path]
        while edge:
            edge = [above for file in edge for above in self.importers.get(file, ()) if above not in far]
            far |= {above: 1 + max(far.values()) for above in edge}
        return far

    def files(self, item: pytest.Item) -> frozenset[Path]:
        """What a test names or imports; of a method's or a module's own test, such as its examples, that alone."""
        words = _case(item)
        named = self.of_case(item)
        modules = frozenset(file for word in words if word.startswith("normkit.") and (file := _file(word)))
        return named | modules if modules or goes_over_methods(item) else named | self._of_file(item.path)

    def of_case(self, item: pytest.Item) -> frozenset[Path]:
        """The files of the methods, flows and others that a case of a test names."""
        return frozenset(self.things[word] for word in _case(item) if word in self.things)

    @functools.cache  # noqa: B019  one instance lives as long as the process
    def _of_file(self, path: Path) -> frozenset[Path]:
        files = [path]  # and the helpers beside it, which a script in a text may make a circle of
        for file in files:
            files += [helper for helper in self._read(file)[1] if helper not in files]
        return frozenset().union(*(self._read(file)[0] for file in files))

    @functools.cache  # noqa: B019
    def _read(self, path: Path) -> tuple[set[Path], list[Path]]:
        """What a test's file names or imports of the package, and of the files beside it."""
        text = path.read_text()
        named = (self.names[word] for word in set(re.findall(r"[\w-]+", text)) if word in self.names)
        helpers = [file for name, _ in imports(text) if name and (file := path.parent / f"{name}.py").exists()]
        return self.imported(text).union(*named), helpers


def _case(item: pytest.Item) -> list[str]:
    """What a test is given, as words; of a golden, the method."""
    given = getattr(item, "callspec", None)
    return words_of(given.params.values()) if given else []


def words_of(values: Iterable[object]) -> list[str]:
    """Values as words; of a golden, the method."""
    return [str(value).partition("/")[0] for value in values]


def callers(tree: ast.Module, scope: str) -> set[str]:
    """The names in a file by which a function is reached: its own, its class's, and of what names one of them.

    >>> sorted(callers(ast.parse("def run_all(): _inner()\\ndef _inner(): ...\\ndef other(): ..."), "_inner"))
    ['_inner', 'run_all']
    """
    words = {name: set(re.findall(r"\w+", ast.unparse(node))) for name, node in functions(tree).items()}
    reached, names = set[str](), {part for part in scope.split(".") if not part.startswith("__")}
    while names - reached:
        reached |= names
        names = {part for name, used in words.items() if used & reached for part in name.split(".")}
        names = {name for name in names if not name.startswith("__")}
    return {name for name in reached if len(name) > 3}  # a shorter one may be anything


@functools.cache
def _id(item: pytest.Item) -> str:
    """The name of a test's case, to look for a file's name in."""
    return _dashed(item.callspec.id) if hasattr(item, "callspec") else ""


def _dashed(text: str) -> str:
    """Words with a dash on each side."""
    return f"-{re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-')}-"


@functools.cache
def words_in(path: Path) -> set[str]:
    """The words of a file."""
    return set(re.findall(r"\w+", path.read_text()))


@functools.cache
def _words(item: pytest.Item) -> set[str]:
    """What a test's own text has; the name of a rule or a method counts as that of its file."""
    function = getattr(item, "function", None)
    try:
        text = inspect.getsource(function) if function else ""
        return set(re.findall(r"\w+", text)) | {word.replace("-", "_") for word in re.findall(r"\w+(?:-\w+)+", text)}
    except (OSError, TypeError):
        return set()


@functools.cache
def _file(name: str) -> Path | None:
    """The file of a module of the package."""
    path = SOURCE.parent / name.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def _beside(path: Path, test: Path) -> list[int]:
    """How near a test is by its place: 1 if it lies in the folder of the same room, 0 if it has the file's name too."""
    parts = path.relative_to(SOURCE).parts
    room = "ops" if parts[0] == "kernels" else parts[0]
    if not test.is_relative_to(ROOT / "tests" / room):
        return []
    name = "gpu" if "cuda" in parts else path.stem.strip("_")
    return [int(name not in test.stem)]


def _defined(tree: ast.Module) -> list[str]:
    """Classes, and functions of more words than one: `run` or `plain` may be anything."""
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [name for name in names if not name.startswith("_") and (name != name.lower() or "_" in name)]


FAMILY = re.compile(r'Family\("[\w-]+", "(\w+)"((?:, "[\w/]+")+)\)')


def _members(texts: dict[Path, str]) -> dict[str, Path]:
    """Flows, rules and other members of families, which are found by their files' names."""
    members = {}
    for holds, folders in FAMILY.findall("\n".join(texts.values())):
        marker = re.compile(rf"^(?:def |class )?{holds}\b", re.MULTILINE)
        places = {SOURCE / folder for folder in re.findall(r"[\w/]+", folders)}
        own = [path for path, text in texts.items() if path.parent in places and marker.search(text)]
        members |= {path.stem.replace("_", "-"): path for path in own if path.stem[0] != "_"}
    return members


def _methods(tree: ast.Module) -> list[str]:
    calls = [d for node in tree.body for d in getattr(node, "decorator_list", []) if isinstance(d, ast.Call)]
    named = [call.args[0] for call in calls if ast.unparse(call.func) == "method" and call.args]
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    values = {ast.unparse(target): node.value for node in assigned for target in node.targets}
    constants = [values.get(ast.unparse(name), name) for name in named]  # NAME = "..." may stand above
    return [name.value for name in constants if isinstance(name, ast.Constant) and isinstance(name.value, str)]


# ---- running ----


class Hunt:
    """Collect the tests once; for each mutant fork, make the mistake, and run what reaches it until something fails."""

    def __init__(self, mutants: Iterator[Mutant], number: int, known: dict[str, str], reach: Reach, options):
        self.mutants, self.number, self.known, self.reach = mutants, number, known, reach
        self.seconds, self.processes = options.seconds, options.processes
        self.verdicts: list[tuple[Mutant, str]] = []  # of each mistake that was drawn
        self.sound, self.unsound = set[str](), set[str]()
        self.traced, costs, self.cases = traces()
        self.costs = costs | (json.loads(COSTS.read_text()) if COSTS.exists() else {})  # of a test and of its cases

    def pytest_runtestloop(self, session):
        """Hand one mutant after the other to the processes that try them, until as many were made as are wanted."""
        self.files = [(item, self.reach.files(item)) for item in session.items]
        gc.collect()
        idle, busy = [self.hunter() for _ in range(self.processes)], dict[Connection, Mutant]()
        drawn, done = deque[Mutant](), dict[str, tuple[str, float, dict[str, float]]]()
        while True:
            self.keep(drawn, done)
            while idle and self.made() + len(drawn) < self.number and (mutant := next(self.mutants, None)) is not None:
                drawn.append(mutant)
                if mutant.name not in self.known:
                    busy[idle[-1]] = mutant
                    idle.pop().send(mutant)
            if not drawn:
                return True
            for connection in wait(list(busy)) if busy else ():
                done[busy.pop(connection).name] = connection.recv()
                idle.append(connection)

    def keep(self, drawn: deque[Mutant], done: dict[str, tuple[str, float, dict[str, float]]]) -> None:
        """Keep the verdicts in the order of the draw: where that is broken off, the quick ones are not too many."""
        while drawn and (drawn[0].name in done or drawn[0].name in self.known):
            mutant = drawn.popleft()
            if mutant.name in done:
                self.note(mutant, *done[mutant.name])
            else:
                self.verdicts.append((mutant, self.known[mutant.name]))

    def hunter(self) -> Connection:
        """Start a process that says of each mutant it is sent who finds it; it ends when nobody sends any more."""
        ours, theirs = Pipe()
        if os.fork() == 0:
            ours.close()
            try:
                with contextlib.suppress(EOFError, KeyboardInterrupt):
                    while True:
                        theirs.send(self.tried(theirs.recv()))
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(0)
        theirs.close()
        return ours

    def tried(self, mutant: Mutant) -> tuple[str, float, dict[str, float]]:
        """The verdict, the seconds that it took, and what tests took of which that was not known."""
        before, costs = spent(), dict(self.costs)
        verdict = self.verdict(mutant)
        return verdict, spent() - before, {test: cost for test, cost in self.costs.items() if costs.get(test) != cost}

    def note(self, mutant: Mutant, verdict: str, seconds: float, costs: dict[str, float]) -> None:
        """Print and keep the verdict on a mutant."""
        self.verdicts.append((mutant, verdict))
        self.costs |= costs
        print(f"{self.made()}/{self.number} {mutant}\n    {verdict}, {seconds:.0f} s", flush=True)
        with VERDICTS.open("a") as verdicts:
            verdicts.write(f"{verdict}\t{mutant.name}\t{mutant}\n")
        COSTS.write_text(json.dumps(self.costs))

    def made(self) -> int:
        """How many of the mistakes that were drawn could be made."""
        return sum(verdict != ABSENT for _, verdict in self.verdicts)

    def verdict(self, mutant: Mutant) -> str:
        """Which test sees a mutant, or that none does, or that it cannot be made in a process that runs."""
        name = ".".join(mutant.path.relative_to(SOURCE.parent).with_suffix("").parts)
        _import([name.removesuffix(".__init__")])
        try:
            witness = self.witness(mutant, self.ranked(mutant))
        except LookupError:
            return ABSENT
        return f"seen by {witness}" if witness else UNSEEN

    def ranked(self, mutant: Mutant) -> list[pytest.Item]:
        """The tests that reach a mutant: near and cheap ones first, and of each function two before two more.

        A test whose own text has the file's name, or one of what is called on the way to the mistake, is nearer than
        its file, and so is one that has a rare word of the lines around it. Nearer still is one that was seen to run
        the function, and one that has its method or its file as a case, most of all where few have; one of which no
        case does is far.
        Before all come the two that know the defaults of methods and of public functions, where a default is mistaken,
        and the one that reads all calls of checks, where one of those is.
        """
        far, turns, ranked = self.reach.distances(mutant.path), Counter[tuple[str, int]](), []
        called = callers(ast.parse(mutant.original), mutant.scope) | {mutant.path.stem}
        names = [_dashed(path.stem) for path, distance in far.items() if distance <= mutant.path.stem.startswith("_")]
        place = f"{mutant.path.relative_to(ROOT)}:{mutant.scope}"
        seen = any(place in ran for ran in self.traced.values())
        cases = Counter(function_of(item) for item, _ in self.files)
        around = "\n".join(mutant.original.splitlines()[max(mutant.line - LINES, 0) : mutant.line])
        rare = {word for word in re.findall(r"\w{4,}", around) if self.rarely(word)}
        own = [item for item, _ in self.files if any(name in _id(item) for name in names)]
        few = len({function_of(item) for item in own if not goes_over_methods(item)}) <= OWN

        @functools.cache
        def away(named: frozenset[Path], test: Path) -> int | None:
            return min([far[path] for path in named if path in far] + _beside(mutant.path, test), default=None)

        for item, named in self.files:
            function, nearest = function_of(item), away(named, item.path)
            ran = self.traced.get(function)
            runs = ran is not None and place in ran
            of_it = mutant.path in self.reach.of_case(item)
            first = mutant.of_default and (function == SIGNATURES or (function == DEFAULTS and of_it))
            if first or (mutant.of_owner and function == OWNERS):
                ranked.append((0.0, item))
            elif nearest is not None or runs:
                near = (nearest or 0) - 2 * bool(called & _words(item)) - 2 * bool(rare & _words(item))
                of_it = of_it or any(name in _id(item) for name in names)
                near -= 4 * runs + (10 if few and not goes_over_methods(item) else 4) * of_it
                if not (runs or of_it) and ran is not None and seen and self.cases[function] >= cases[function]:
                    near += 4
                turns[function, near] += 1
                turn = (turns[function, near] + 1) // 2
                cost = self.costs.get(item.nodeid, self.costs.get(function, LATE if takes_long(item) else 0.1))
                ranked.append((max(cost, 0.05) * 3**near * turn, item))
        return [item for _, item in sorted(ranked, key=lambda entry: entry[0])]

    def rarely(self, word: str) -> bool:
        """Whether few tests have a word, so that it tells which of those that run a function run a line of it."""
        return 0 < self.tests_with[word] <= FEW

    @functools.cached_property
    def tests_with(self) -> Counter[str]:
        """How many tests have each word in their text."""
        tests = {function_of(item): item for item, _ in self.files}
        return Counter(word for item in tests.values() for word in _words(item))

    def witness(self, mutant: Mutant, items: list[pytest.Item]) -> str | None:
        """The test that finds a mutant, if one does; one that fails without a mutant too is given up."""
        items, until = [item for item in items if item.nodeid not in self.unsound], spent() + self.seconds
        living(), wrappers()
        while (failed := self.fails(mutant, items, until - spent())) is not None:
            failing, in_time = failed
            if self.is_sound(failing, in_time):
                return failing.nodeid
            self.unsound.add(failing.nodeid)
            items = items[items.index(failing) + 1 :]
        return None

    def is_sound(self, item: pytest.Item, in_time: bool) -> bool:
        """Whether a test passes without a mutant. One that did not end in time is known to do so in a tenth of that."""
        if not in_time:
            usual = self.costs.setdefault(function_of(item), self.seconds)
            return usual < self.seconds / 20
        if item.nodeid not in self.sound and self.fails(None, [item], self.seconds) is not None:
            return False
        self.sound.add(item.nodeid)
        return True

    def fails(self, mutant: Mutant | None, items: list[pytest.Item], seconds: float) -> tuple[pytest.Item, bool] | None:
        """The first test that fails, crashes or never ends in a process that has the mutant, and if it was in time."""
        with tempfile.TemporaryDirectory(dir=ROOT, prefix=".mutate.") as folder, tempfile.TemporaryFile() as report:
            _link(mutant, Path(folder))
            child = os.fork()
            if child == 0:
                os._exit(self.attempt(mutant, items, seconds, folder, report.fileno()))
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(ProcessLookupError):  # what a test has started and left
                os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            report.seek(0)
            lines = [line.decode().split() for line in report]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == NOWHERE:
            raise LookupError(f"nothing that is loaded has {mutant}")
        for item, (seconds, *names) in zip(items, lines, strict=False):
            if not names:  # else it has waited for them, this once
                self.costs[item.nodeid] = self.costs[function_of(item)] = float(seconds)
            _import(names)
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
        return (items[len(lines)], not late) if status and len(lines) < len(items) else None

    def attempt(self, mutant: Mutant | None, items: list[pytest.Item], seconds: float, folder: str, writer: int) -> int:
        """In the child: 1 if a test fails, else 0; NOWHERE without the mutant. It tells what tests cost and import."""
        os.setpgid(0, 0)
        if mutant is not None:
            try:
                made = make(mutant)
            except Exception:
                traceback.print_exc(file=sys.__stderr__)
                made = False
            if not made:
                return NOWHERE
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        sys.path.insert(0, folder)  # of the next Python
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        gc.freeze()  # what is shared with the parent stays shared
        start, known = spent(), set(sys.modules)
        for item, following in itertools.zip_longest(items, items[1:]):
            before = spent()
            if before - start > seconds:
                return 0
            signal.setitimer(signal.ITIMER_PROF, self.seconds / 2)  # kills what never ends
            signal.alarm(int(4 * self.seconds))  # and what waits for ever, on a busy machine too
            if any(report.failed for report in runtestprotocol(item, nextitem=following, log=False)):
                return 1
            new, known = [name for name in list(sys.modules) if name not in known], set(sys.modules)
            if any(name.partition(".")[0] not in UNFORKED for name in new):
                start += spent() - before  # the next process has them from the beginning
            os.write(writer, f"{spent() - before:.4f} {' '.join(new)}\n".encode())
        return 0


def _import(names: list[str]) -> None:
    """Load once for all, before the next fork, what a test needed."""
    for name in names:
        if name not in sys.modules and name.partition(".")[0] not in UNFORKED:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
            living.cache_clear(), wrappers.cache_clear()


def _link(mutant: Mutant | None, folder: Path) -> None:
    """Fill a folder with links to the files of the package, but for the file of a mutant, which is written.

    The folders are its own: who looks for files in them would not follow a link. Compiled files are linked too.
    """
    for original, folders, files in os.walk(SOURCE):
        copied = folder / SOURCE.name / Path(original).relative_to(SOURCE)
        copied.mkdir()
        stem = mutant.path.stem if mutant is not None and mutant.path.parent == Path(original) else None
        for name in files:
            if mutant is None or Path(original, name) != mutant.path:
                (copied / name).symlink_to(Path(original, name))
        cache = Path(original, "__pycache__")
        if "__pycache__" in folders:
            folders.remove("__pycache__")
            (copied / "__pycache__").mkdir()
            for entry in [entry for entry in cache.iterdir() if entry.name.partition(".")[0] != stem]:
                (copied / "__pycache__" / entry.name).symlink_to(entry)
    if mutant is not None:
        (folder / SOURCE.name / mutant.path.relative_to(SOURCE)).write_text(mutant.source)


def takes_long(item: pytest.Item) -> bool:
    """Whether a test compiles, exports or starts processes."""
    return any(word in item.nodeid for word in LONG)


def goes_over_methods(item: pytest.Item) -> bool:
    """Whether a test is of the contract or of the goldens, where a case is a method."""
    return item.path.is_relative_to(SOURCE) or item.path.name == "test_goldens.py"


@functools.cache
def function_of(item: pytest.Item) -> str:
    """A test without its case."""
    return item.nodeid.partition("[")[0]


def spent() -> float:
    """Seconds of a processor, of the processes that have ended too: a busy machine changes no verdict."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def verdicts() -> dict[str, str]:
    """The last verdict on each mistake that was tried."""
    lines = VERDICTS.read_text().splitlines() if VERDICTS.exists() else []
    return {name: verdict for verdict, name, _ in (line.split("\t", 2) for line in lines)}


def traces() -> tuple[dict[str, set[str]], dict[str, float], Counter[str]]:
    """The functions that each test was seen to run, the seconds it took, and how many of its cases were run."""
    ran, seconds, cases = defaultdict[str, set[str]](set), dict[str, float](), Counter[str]()
    for file in sorted(ROOT.glob(TRACES)):
        trace = json.loads(file.read_text())
        for test, (cost, count, *numbers) in trace["tests"].items():
            ran[test] |= {trace["functions"][number] for number in numbers}
            seconds[test] = max(cost, seconds.get(test, 0.0))
            cases[test] += count
    return dict(ran), seconds, cases


def refused_by_types(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Those that mypy refuses, as a change must pass it as well; none where it refuses the package as it is."""
    refused = []
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "mypy", "--no-sqlite-cache", "--cache-dir", cache]
        if subprocess.run(command, cwd=ROOT, capture_output=True).returncode:
            return []
        mistaken = Path(cache, "mistaken.py")
        for mutant in mutants:
            place = mutant.path.relative_to(SOURCE.parent).with_suffix("")
            for file in Path(cache).glob(f"*/{place}.*"):  # else what it knows of the file as it is would be taken
                file.unlink()
            mistaken.write_text(mutant.source)
            shadow = ["--shadow-file", str(mutant.path.relative_to(ROOT)), str(mistaken)]
            if subprocess.run([*command, *shadow], cwd=ROOT, capture_output=True).returncode == 1:
                refused.append(mutant)
    return refused


def changed() -> list[Path]:
    """The package's files that differ from main."""
    diff = subprocess.run(["git", "diff", "--name-only", "main"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in whole() if str(path.relative_to(ROOT)) in diff.stdout.split()]


def whole() -> list[Path]:
    """All of the package but the contract, which is tests."""
    return sorted(path for path in SOURCE.rglob("*.py") if "contract" not in path.relative_to(SOURCE).parts)


def contract_names(mutants: Iterable[Mutant], reach: Reach) -> list[str]:
    """The names whose contract is run: those in a mistake's file, else the nearest that name its function, and some.

    What a helper's function is for, one method of the five that call it may see alone.
    """
    names = set(EVERYWHERE) & set(reach.methods)
    for mutant in mutants:
        far, called = reach.distances(mutant.path), callers(ast.parse(mutant.original), mutant.scope)
        near = [(far[file], not called & words_in(file), name) for name, file in reach.things.items() if file in far]
        names |= {name for distance, _, name in near if not distance} or {name for *_, name in sorted(near)[:CALLERS]}
    return sorted(names)


def main() -> int:
    """Read the command line, record if need be, hunt, and print the score with its survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=lambda text: Path(text).resolve())
    parser.add_argument("--all", action="store_true", help="draw from the whole package")
    parser.add_argument("--mutants", type=int, default=100, help="how many mistakes, drawn by seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a processor, for the tests of one mistake")
    parser.add_argument("--processes", type=int, default=2, help="of the tests, each with one mistake at a time")
    parser.add_argument("--again", action="store_true", help="only those that were not tried yet or not seen")
    parser.add_argument("--go-on", action="store_true", help="only those that were not tried yet")
    options = parser.parse_args()
    if not options.again and not options.go_on:
        VERDICTS.unlink(missing_ok=True)
    known = {name: verdict for name, verdict in verdicts().items() if verdict != UNSEEN or not options.again}
    mutants, count = drawn(whole() if options.all else options.files or changed(), options.seed)
    tried = hunt(mutants, known, options)
    unseen = [mutant for mutant, verdict in tried if verdict == UNSEEN]
    refused = refused_by_types(unseen)
    made = sum(verdict != ABSENT for _, verdict in tried)
    by_tests, by_both = (1 - (len(unseen) - types) / made if made else 0.0 for types in (0, len(refused)))
    print(f"\n{len(tried) - made} of {len(tried)} mistakes cannot be made in a process that runs")
    print(f"{by_tests:.1%} of {made} mistakes are seen by tests, {by_both:.1%} by tests or types", end=" ")
    print(f"(of {count}, seed {options.seed}); by types alone:", *refused, "not seen:", sep="\n")
    print(*[mutant for mutant in unseen if mutant not in refused], sep="\n")
    return int(by_both < GOOD)


def hunt(mutants: Iterator[Mutant], known: dict[str, str], options: argparse.Namespace) -> list[tuple[Mutant, str]]:
    """Let pytest collect the tests, and try the mutants on them instead of running them."""
    reach, number = Reach(whole()), options.mutants
    first = list(itertools.islice(mutants, number + number // 4))  # some more than asked for: not each can be made
    os.environ["OMP_NUM_THREADS"] = "1"  # a fork has no threads, and would wait for those of its parent for ever
    os.environ[ASKED] = ",".join(contract_names((mutant for mutant in first if mutant.name not in known), reach))
    hunt = Hunt(itertools.chain(first, mutants), number, known, reach, options)
    with contextlib.suppress(KeyboardInterrupt):
        pytest.main(
            [str(ROOT / "tests"), str(SOURCE / "contract"), "-q", "-p", "no:cacheprovider", "-s"], plugins=[hunt]
        )
    return hunt.verdicts


if __name__ == "__main__":
    sys.exit(main())
