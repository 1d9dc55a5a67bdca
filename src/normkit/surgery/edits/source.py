"""The source of a module's forward, to be read and changed; control flow stays as it was written."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn


class Source:
    """The source of a class's forward, and what it calls its first argument; a ValueError where there is none to read.

    Args:
        own: a class of modules.
    """

    def __init__(self, own: type[nn.Module]):
        self.own = own
        self.inner: Any = inspect.unwrap(own.forward)
        self.tree = copy.deepcopy(_parsed(self.inner))
        self.self = self.tree.args.args[0].arg
        self.scope: dict[str, Any] = self.inner.__globals__

    def part(self, node: ast.AST) -> str | None:
        """The name of the module's own part whose call, with one argument, a piece of source is."""
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return None
        return None if isinstance(node.args[0], ast.Starred) else self.attribute(node.func)

    def attribute(self, node: ast.AST) -> str | None:
        """The name of the module's own attribute that a piece of source is."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return None
        return node.attr if node.value.id == self.self else None

    def parts_called_once(self) -> dict[str, ast.Call]:
        """The module's parts that are named once in all, in a call with one argument."""
        named = [self.attribute(node) for node in ast.walk(self.tree)]
        calls = [(self.part(node), node) for node in ast.walk(self.tree)]
        return {name: node for name, node in calls if name is not None and named.count(name) == 1}  # type: ignore[misc]

    def bodies(self) -> Iterator[list[ast.stmt]]:
        """Every list of statements that are run one after another."""
        for node in ast.walk(self.tree):
            for _, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield value

    def function(self) -> Callable[..., Any]:
        """The forward that the source now is, in the module that the class was written in."""
        tree = copy.deepcopy(self.tree)
        decorators, tree.decorator_list = tree.decorator_list, []
        module = ast.fix_missing_locations(ast.Module([tree], []))
        namespace: dict[str, Any] = {}
        exec(compile(module, self.inner.__code__.co_filename, "exec"), self.scope, namespace)
        new = namespace[tree.name]
        for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__module__", "__qualname__"):
            setattr(new, name, getattr(self.inner, name))
        for decorator in reversed(decorators):
            expression = ast.fix_missing_locations(ast.Expression(decorator))
            new = eval(compile(expression, self.inner.__code__.co_filename, "eval"), self.scope)(new)
        return new


@functools.cache
def _parsed(forward: Any) -> ast.FunctionDef:
    """A function's definition, with the lines that it has in its file and without annotations."""
    try:
        lines, first = inspect.getsourcelines(forward)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndentationError) as error:
        raise ValueError("the source of its block's forward cannot be read") from error
    if not isinstance(tree, ast.FunctionDef) or not tree.args.args or forward.__closure__:
        raise ValueError("its block's forward is no plain method")
    names = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr.startswith("__")]
    private = [name for name in names if not name.endswith("__")]
    if private:
        raise ValueError(f"its block's forward reads {private[0]}, which only its class can name")
    ast.increment_lineno(tree, first - 1)
    _without_annotations(tree)
    return tree


def _without_annotations(tree: ast.FunctionDef) -> None:
    """Leave out what is evaluated where a function is defined; the function is given it later."""
    arguments = tree.args
    tree.returns = None
    for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if one is not None:
            one.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if value is None else ast.Constant(None) for value in arguments.kw_defaults]


def method(source: Source, name: str, *args: ast.expr) -> ast.Call:
    """The source of a call of one of the class's own functions."""
    function = ast.Attribute(ast.Name(source.self, ast.Load()), name, ast.Load())
    return ast.Call(function, list(args), [])


def replace_source(tree: ast.AST, old: ast.AST, new: ast.expr) -> None:
    """Put a piece of source into the place of another."""

    class Replacing(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(new, node) if node is old else self.generic_visit(node)

    Replacing().visit(tree)
