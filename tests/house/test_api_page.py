"""The page of the Python reference shows all that is public, and nothing else."""

import importlib
import importlib.util
import inspect
import json
import pathlib
import re

import normkit as nk

PAGE = pathlib.Path(__file__).parents[2] / "docs/api.md"
SHOWN = re.findall(r"^::: ([\w.]+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
ROOMS = ("density", "text", "watching", "weight")  # whose names are kept out of normkit's own


def at(path):
    """What a path names, a module or something in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        place, _, name = path.rpartition(".")
        return getattr(importlib.import_module(place), name)


def public():
    """Classes and functions that are no methods, by the name that a user types."""
    names = {name: getattr(nk, name) for name in [*nk.HERE, *nk._exports()]}
    for room in ROOMS:
        module = getattr(nk, room)
        names |= {f"{room}.{name}": getattr(module, name) for name in dir(module) if name[0] != "_"}
    return {
        name: thing
        for name, thing in names.items()
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__.startswith("normkit.")
    }


def test_each_public_name_is_on_the_page():
    things = [at(path) for path in SHOWN]
    modules = {thing.__name__ for thing in things if inspect.ismodule(thing)}
    methods = {id(nk.catalog.entry_by_name(name)) for name in nk.catalog.entry_names()}
    missing = {
        name
        for name, thing in public().items()
        if not any(thing is one for one in things) and thing.__module__ not in modules and id(thing) not in methods
    }
    assert missing == set()


def test_each_path_on_the_page_is_public_and_shown_once():
    assert len(SHOWN) == len(set(SHOWN))
    assert [path for path in SHOWN if any(part[0] == "_" for part in path.split("."))] == []
    assert all(inspect.getdoc(at(path)) for path in SHOWN)


def test_what_adding_a_method_tells_to_rely_on_is_on_the_page():
    text = PAGE.with_name("adding.md").read_text(encoding="utf-8")
    told = {f"normkit.{name}" for name in re.findall(r"`((?:check|running)\.\w+)", text)}
    assert len(told) > 8
    shown = [at(path) for path in SHOWN]
    modules = {thing.__name__ for thing in shown if inspect.ismodule(thing)}
    assert {path for path in told if at(path) not in shown and at(path).__module__ not in modules} == set()


def test_each_argument_of_a_function_on_the_page_is_named_in_its_docstring():
    functions = [(path, at(path)) for path in SHOWN if inspect.isfunction(at(path))]
    missing = {
        f"{path}({name})"
        for path, function in functions
        for name in inspect.signature(function).parameters
        if not re.search(rf"\b{name}\b", inspect.getdoc(function))
    }
    assert len(functions) > 50
    assert missing == set()


def test_names_arguments_and_defaults_are_those_that_were_written_down():
    spec = importlib.util.spec_from_file_location("api", PAGE.parents[1] / "tools/api.py")
    api = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(api)
    now, before = api.surface(), json.loads(api.PATH.read_text(encoding="utf-8"))
    changed = {name: (before.get(name), now.get(name)) for name in now | before if before.get(name) != now.get(name)}
    assert changed == {}, "a change that is meant is written down by `python tools/api.py`"
