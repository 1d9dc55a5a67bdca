"""Run the tests that a change can reach: `pytest --changed` since the last commit, `pytest --changed BASE` since BASE.

Files that are not committed yet count as changed. Selected are

- every test where what all methods share changed: `SHARED`;
- test files that changed, and those that import or name a changed helper or other file;
- tests whose own text, with what it uses of its file, leads by imports to a changed file of the package; those of the
  room where the file serves no method; and those that `traced.py` saw run one of its functions;
- the contract, the goldens and all other cases of the methods that lead to a changed file; of tests of other rooms that
  only use such a method, one a folder;
- one case a kind and line of the contract and of the goldens for the other methods, and the tests of the whole house.

What leads where is read off, as `mutate.py` does: this is for the one who works. Before a merge all tests run.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from mutate import (
    ROOT,
    SOURCE,
    Reach,
    _beside,
    _case,
    function_of,
    goes_over_methods,
    imports,
    takes_long,
    traces,
    words_of,
)

PACKAGE, TESTS = "src/normkit", ROOT / "tests"
SHARED = (
    *(f"{PACKAGE}/{name}" for name in ("kinds/", "ops/", "kernels/", "contract/", "catalog.py", "__init__.py")),
    *("setup.py", "pyproject.toml", "constraints.txt", "MANIFEST.in", "tests/conftest.py"),
)

LISTS = re.compile(r'\b(?:methods|cards)\((?:(?:room|group)="(?P<place>[\w-]+)"\))?|\bMETHODS\b')

EXAMPLES = ("test_changed.py", "test_mutate.py")  # the methods that these name are examples
SLOW = (  # tests, and a file of them, that start several processes, call every method or go on for seconds
    "test_kernel_formula_and_float64_agree_on_random_calls",
    "test_the_contract_holds_a_method_of_a_users_package",
    "test_the_installed_command_answers",
    "test_the_site_has_a_table_of_all_methods_and_fills_in_the_marks_of_pages",
    "test_extension.py",
)


def pytest_addoption(parser):
    """Let a commit be named or not."""
    parser.addoption("--changed", nargs="?", const="HEAD", metavar="BASE", help=__doc__.splitlines()[0])


def pytest_sessionstart(session):
    """Select only where it is asked for."""
    base = session.config.getoption("changed", None)
    if base is not None:
        session.config.pluginmanager.register(Selection(differing(ROOT, base)))


def differing(root: Path, base: str) -> list[Path]:
    """The files that are not as they were in a commit, new ones too."""
    if _git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}") is None:
        raise pytest.UsageError(f"--changed: {base!r} is no commit; before a path, name one: --changed=HEAD {base}")
    names = [_git(root, "diff", "--name-only", "--no-renames", base, "--")]
    names += [_git(root, "ls-files", "--others", "--exclude-standard")]
    return sorted({root / name for text in names for name in (text or "").splitlines()})


def _git(root: Path, *words: str) -> str | None:
    """What git prints, or None if it refuses."""
    command = ["git", "-c", "core.quotePath=false", *words]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return None if answer.returncode else answer.stdout


class Selection:
    """Which tests a change reaches, and which of its files no test reaches."""

    def __init__(self, paths: list[Path]):
        self.paths, self.unreached = paths, list[str]()
        self.whole = any(str(path.relative_to(ROOT)).startswith(SHARED) for path in paths)
        self.package = [path for path in paths if path.is_relative_to(SOURCE)]
        self.first = dict[tuple[str, Path], str]()

    # not before a test is collected: the process that only hands tests to others needs none of these

    @functools.cached_property
    def reach(self) -> Reach:
        """What leads where in the package."""
        return Reach(sorted(SOURCE.rglob("*.py")))

    @functools.cached_property
    def above(self) -> dict[Path, frozenset[Path]]:
        """What leads to each changed file of the package."""
        return {path: frozenset(self.reach.distances(path)) for path in self.package}

    @functools.cached_property
    def rooms(self) -> set[Path]:
        """The changed files that serve no method."""
        methods = {*self.reach.methods.values()}
        return {path for path, above in self.above.items() if not above & methods}

    @functools.cached_property
    def ran(self) -> dict[str, set[str]]:
        """The functions that each test was seen to run."""
        return traces()[0]

    def pytest_ignore_collect(self, collection_path):
        """Do not import a test file that nothing changed leads to, and that goes over no methods."""
        if self.whole or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
            return None
        if not collection_path.is_relative_to(TESTS) or collection_path.parent in (TESTS, TESTS / "house"):
            return None
        near = any(self.leads(path, collection_path, None) for path in self.paths)
        return None if near or self.goes_over_reached(collection_path.read_text()) else True

    def goes_over_reached(self, text: str) -> bool:
        """Whether a test file goes over all methods, or over those of a room or group with one that is reached."""
        return any(match["place"] in {None, *self.places} for match in LISTS.finditer(text))

    @functools.cached_property
    def places(self) -> set[str]:
        """The rooms and groups of the methods that are reached."""
        methods = self.reach.methods.items()
        reached = [file for name, file in methods if any(self.has([name], {file}, path) for path in self.paths)]
        return {part for file in reached for part in file.relative_to(SOURCE).parts[:-1]}

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc):
        """Make no cases of the contract and the goldens but of the methods that are reached and of the witnesses."""
        item = metafunc.definition
        if self.whole or not goes_over_methods(item) or item.path in self.paths:
            return
        for at, mark in enumerate(item.own_markers):
            if mark.name == "parametrize" and "ids" not in mark.kwargs:
                names, values = mark.args
                item.own_markers[at] = pytest.mark.parametrize(names, self.wanted(values), **mark.kwargs).mark

    def wanted(self, values: Iterable[object]) -> list[object]:
        """Of the values of a test those whose method is reached, and one a kind; all of what names no method."""
        kept, kinds = [], set[type]()
        for value in values:
            words = words_of(value if isinstance(value, tuple) else (value,))
            files = {self.reach.methods[word] for word in words if word in self.reach.methods}
            kind = self.kind(words)
            if not files or kind not in kinds or any(self.has(words, files, path) for path in self.paths):
                kept.append(value)
                kinds.add(kind)
        return kept

    def has(self, words: list[str], files: Collection[Path], path: Path) -> bool:
        """Whether methods, by their names and files, lead to a file, or have it among their goldens."""
        parts = path.relative_to(ROOT).parts
        return parts[2] in words if parts[:2] == ("tests", "goldens") else bool(self.above.get(path, set()) & files)

    def kind(self, words: list[str]) -> type:
        """The kind of the first method that is named."""
        import normkit as nk

        names = [word for word in words if word in self.reach.methods]
        return type(nk.card(names[0]).kind) if names else type(None)

    def pytest_collection_modifyitems(self, config, items):
        """Keep what is reached, and of the rest the witnesses."""
        if self.whole:
            return
        reached, witnesses = set[Path](), set[tuple[str, type]]()
        kept, left = [], []
        for item in items:
            paths = {path for path in self.paths if self.reaches(item, path)}
            reached |= paths
            (kept if paths or self.is_witness(item, witnesses) else left).append(item)
        self.unreached = [str(path.relative_to(ROOT)) for path in self.paths if path not in reached]
        config.hook.pytest_deselected(items=left)
        items[:] = kept

    def reaches(self, item: pytest.Item, path: Path) -> bool:
        """Whether a test, or its case, leads to a file."""
        if item.path.name in EXAMPLES and path in self.package:
            return False
        if goes_over_methods(item) or "goldens" in path.relative_to(ROOT).parts[:2]:
            return self.of_case(item, path)
        pages = [value for value in _given(item) if isinstance(value, Path)]
        if pages and path not in self.package:
            return path in pages
        led = self.of_case(item, path) or self.leads(path, item.path, item) or self.was_run(item, path)
        return led and self.is_taken(item, path)

    def of_case(self, item: pytest.Item, path: Path) -> bool:
        """Whether the method or the module that a test is given leads to a file, or has it among its goldens."""
        return item.path == path or self.has(_case(item), self.given(item), path)

    def given(self, item: pytest.Item) -> frozenset[Path]:
        """The files of the methods and modules that a test is given."""
        words = {word for word in _case(item) if word.startswith("normkit.")}
        modules = [SOURCE.parent / word.replace(".", "/") for word in words]
        files = {file for stem in modules for file in (stem.with_suffix(".py"), stem / "__init__.py")}
        return self.reach.of_case(item) | files

    def leads(self, path: Path, file: Path, item: pytest.Item | None) -> bool:
        """Whether a test, or any of its file where it is not collected yet, leads to a changed file."""
        if path in helpers(file) or (path.name == "conftest.py" and file.is_relative_to(path.parent)):
            return True
        text = uses(file, item.nodeid.split("::")[1].partition("[")[0] if item else None)
        if path not in self.above:
            return _names(text, path, file)
        files = self.files(text, file)
        if path in self.rooms and _beside(path, file):
            return True
        return bool(files & self.above[path])

    def is_taken(self, item: pytest.Item, path: Path) -> bool:
        """Whether a test is not one of many that use a method by its name; the method has tests of its own.

        In its own room's folder and the house's a test's first case is taken, and those that name the file. Elsewhere
        the first case that names it is, and of tests whose cases do not, the first of their folder; none that starts
        processes.
        """
        if path not in self.above or path in self.rooms:
            return True
        names = {path.stem, path.stem.replace("_", "-")}
        named = any(name in item.nodeid.partition("[")[2] for name in names)
        home = item.path.relative_to(TESTS).parts[0] in {path.relative_to(SOURCE).parts[0], "house"}
        if home and named:
            return True
        if not home and is_slow(item):
            return False
        key = function_of(item) if home or named else str(item.path.parent)
        return self.first.setdefault((key, path), item.nodeid) == item.nodeid

    @functools.cache  # noqa: B019  one instance lives as long as the process
    def files(self, text: str, file: Path) -> frozenset[Path]:
        """The files of the package that a text imports or names, and those that the helpers do that it imports."""
        named = [self.reach.names.get(word, ()) for word in set(re.findall(r"[\w-]+", text))]
        beside = [self.files(helper.read_text(), helper) for helper in _imported(text, file) if helper != file]
        return frozenset(self.reach.imported(text)).union(*named, *beside)

    def was_run(self, item: pytest.Item, path: Path) -> bool:
        """Whether a test was seen to run a function of a file."""
        return any(name.startswith(f"{path.relative_to(ROOT)}:") for name in self.ran.get(function_of(item), ()))

    def is_witness(self, item: pytest.Item, seen: set[tuple[str, type]]) -> bool:
        """Whether a case is the first of its kind and line, or a test is of the whole house; if the package changed."""
        if not self.package:
            return False
        if not goes_over_methods(item):
            own = (ROOT / "tools" / item.path.name.removeprefix("test_")).exists()  # of a tool, which did not change
            return item.path.parent.name == "house" and not (own or is_slow(item) or _given(item))
        key = (function_of(item), self.kind(_case(item)))
        return key not in seen and not seen.add(key)

    def pytest_sessionfinish(self, session):
        """Let the process that prints know what was not reached."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["unreached"] = self.unreached

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take what a process that runs tests knows."""
        self.unreached = getattr(node, "workeroutput", {}).get("unreached", self.unreached)

    def pytest_terminal_summary(self, terminalreporter):
        """Name the files that no test reaches."""
        terminalreporter.section(f"changed files: {len(self.paths)}")
        if self.whole:
            terminalreporter.write_line("every test was selected: what all methods share changed")
        for name in self.unreached:
            terminalreporter.write_line(f"no test reaches {name}")


def is_slow(item: pytest.Item) -> bool:
    """Whether a test takes seconds, for a change that it does not name."""
    return takes_long(item) or not {item.name, item.path.name}.isdisjoint(SLOW)


def _given(item: pytest.Item) -> list[object]:
    """The values of a case."""
    given = getattr(item, "callspec", None)
    return list(given.params.values()) if given else []


def _names(text: str, path: Path, file: Path) -> bool:
    """Whether a text has the name of a file that is not of the package, or of a folder that it lies in."""
    top, *folders = path.relative_to(ROOT).parts[:-1] or ("",)
    if top == "tests":
        return file.parent in path.parents and any(word in text for word in (path.name, *folders[1:]))
    return path.name in text or bool({top, *folders} & set(re.findall(r"[\w-]+", text)))


@functools.cache
def uses(file: Path, test: str | None) -> str:
    """The source of a test with all of its file that it uses, and what always runs; of no test, the whole file."""
    pieces = _pieces(file)
    if test is None or test not in pieces:
        return file.read_text()
    names, texts = {""}, dict.fromkeys(pieces[test])
    while names:
        texts |= dict.fromkeys(text for name in names for text in pieces.get(name, ()))
        words = {word for text in texts for word in re.findall(r"\w+", text)}
        names = {name for name in words & pieces.keys() if not set(pieces[name]) <= texts.keys()}
    return "\n".join(texts)


@functools.cache
def _pieces(file: Path) -> dict[str, list[str]]:
    """The statements of a file, each by the names that it binds; by none what always runs."""
    pieces: dict[str, list[str]] = {}
    source = file.read_text()
    lines = source.splitlines()
    for node in ast.parse(source).body:
        above = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
        text = "\n".join(lines[min([node.lineno, *above]) - 1 : node.end_lineno])
        for name in [*_bound(node)] or [""]:
            pieces.setdefault("" if "autouse" in text.partition("def ")[0] else name, []).append(text)
    return pieces


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.alias):
            yield (inner.asname or inner.name).partition(".")[0]


def helpers(file: Path) -> frozenset[Path]:
    """A test file, and the files of tests and tools that it imports, be it by way of others."""
    files, edge = {file}, {file}
    while edge:
        edge = {helper for path in edge for helper in _imported(path.read_text(), path)} - files
        files |= edge
    return frozenset(files)


@functools.cache
def _imported(text: str, file: Path) -> list[Path]:
    """The files of tests and tools that a text imports."""
    names = {name for module, parts in imports(text) for name in (module, *parts) if re.fullmatch(r"[\w.]+", name)}
    places = (file.parent, TESTS, ROOT / "tools", ROOT)
    paths = [place / f"{name.replace('.', '/')}.py" for name in names for place in places]
    return [path for path in paths if path.exists() and not path.is_relative_to(SOURCE)]
