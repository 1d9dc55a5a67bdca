"""ARCHITECTURE.md says who may import whom; the imports of every file are read, those inside functions too.

What is imported for a type checker only is not imported.
"""

import ast
import functools
import pathlib
import re
import sys

from normkit.contract.values import over
from normkit.optional import GROUPS

ROOT = pathlib.Path(__file__).parents[2]
SRC = ROOT / "src"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def floors(page=PAGE):
    """From below to above, the packages of each."""
    block = re.search(r"^```floors\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    return [set(re.split(r"\s{2,}", line)[0].split()) for line in reversed(block.splitlines())]


def table(title):
    """The rows of the table whose head begins with a title: the packages in the first cell, and those in the second."""
    lines = PAGE.partition(f"| {title} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[re.findall(r"`(\w+)`", cell) for cell in line.split("|")[1:3]] for line in lines]


FLOORS = floors()
ONLY = {package: set(users) for packages, users in table("package") for package in packages}
EXCEPTIONS = {(source, target) for [source], [target] in table("imports")}


def modules():
    """Every module by its name."""
    names = {".".join(p.relative_to(SRC).with_suffix("").parts): p for p in sorted(SRC.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


MODULES = modules()


def statements(tree, functions):
    """All nodes, or those outside of functions: what runs when a module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from statements(node, functions)


@functools.cache
def imported(name, functions=True):
    """The names that a module imports; of the library's own, the modules."""
    return {name for node in statements(tree(name), functions) for name in names_of(node)}


@functools.cache
def tree(name):
    return ast.parse(MODULES[name].read_text())


def names_of(node):
    """What a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.level == 0, f"line {node.lineno}: imports are written whole"
    inner = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if name in MODULES else node.module for name in inner]


@functools.cache
def edges(name):
    return imported(name) & MODULES.keys()


def package(module):
    return module.split(".")[1] if "." in module else module


def floor(name):
    return next((level for level, packages in enumerate(FLOORS) if name in packages), None)


def refusal(source, target):
    """Why a package may not import another, or None."""
    if source == target or (source, target) in EXCEPTIONS:
        return None
    if floor(target) >= floor(source):
        return f"{target} is not below {source}"
    if source not in ONLY.get(target, {source}):
        return f"{target} is kept for {', '.join(sorted(ONLY[target]))}"
    return None


def test_every_package_has_a_floor():
    assert {package(name) for name in MODULES} <= set().union(*FLOORS)
    assert sum(map(len, FLOORS)) == len(set().union(*FLOORS)), "one floor each"


@over(name=MODULES)
def test_imports_come_from_below(name):
    found = {to: refusal(package(name), package(to)) for to in edges(name)}
    assert {to: why for to, why in found.items() if why} == {}


def test_the_page_is_read_as_it_is_meant():
    assert floor("check") < floor("statistics") < floor("ops") < floor("activation") == floor("attention")
    assert refusal("statistics", "ops") == "ops is not below statistics"
    assert refusal("weight", "attention") == "attention is not below weight"
    assert refusal("activation", "kernels") == "kernels is kept for ops"
    assert (
        refusal("transformer", "gradient") == "gradient is kept for bench, claims, lab, probe, surgery, titan, watching"
    )
    assert refusal("bench", "lab") == "lab is not below bench"
    assert refusal("cli", "lab") is refusal("ops", "kernels") is refusal("transformer", "attention") is None


def test_an_exception_that_is_no_longer_needed_goes():
    used = {(package(name), package(to)) for name in MODULES for to in edges(name)}
    assert used >= EXCEPTIONS


def test_no_modules_import_each_other_in_a_circle():
    assert circle({name: edges(name) for name in MODULES}) is None
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_no_folders_of_a_package_import_each_other_in_a_circle():
    inside = {folder(name) for name in MODULES} - {None}
    edges_of = {one: {folder(to) for name in MODULES if folder(name) == one for to in edges(name)} for one in inside}
    beside = {one: {to for to in others & inside if package(to) == package(one)} for one, others in edges_of.items()}
    assert {"normkit.surgery.exact", "normkit.lab.plan"} < inside
    assert circle(beside) is None


def folder(module):
    """The folder of a package that a module lies in; None for those that lie in the package itself."""
    parts = MODULES[module].relative_to(SRC).parts
    return ".".join(parts[:3]) if len(parts) > 3 else None


def circle(edges):
    """The first circle found, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        found = next(filter(None, map(visit, sorted(edges[name] - {name}))), None)
        path.pop()
        done.add(name)
        return found

    return next(filter(None, map(visit, sorted(edges))), None)


TEMPLATES = "normkit.kernels.cuda.templates"  # they are written in Triton


@over(name=[name for name in MODULES if not name.startswith(TEMPLATES)])
def test_what_is_written_in_triton_is_imported_where_it_is_used(name):
    assert not [found for found in imported(name, functions=False) if found.startswith(TEMPLATES)]


@over(name=[name for name in MODULES if not name.startswith("normkit.contract")])  # it is pytest
def test_heavy_packages_are_imported_where_they_are_used(name):
    there = {found.split(".")[0] for found in imported(name, functions=False)}
    written_in = {"triton"} if name.startswith(TEMPLATES) else set()
    assert there - set(sys.stdlib_module_names) <= {"normkit", "torch", "numpy", *written_in}
    assert not {found.split(".")[0] for found in imported(name)} - {
        *sys.stdlib_module_names,
        *GROUPS,
        *("normkit", "torch", "numpy"),
    }, "optional.GROUPS says which group brings a package"
