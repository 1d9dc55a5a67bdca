"""What a module's answer depends on besides its numbers: the source of its classes and of all that they read.

Two modules of one fingerprint and one configuration compute the same, whatever their classes are called: a copy of a
class in another file, with other comments, has the fingerprint of the first. A module has none where something is read
that cannot be named: an object of an unknown class, a function without source, a hook on all modules.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from normkit.surgery.recognition.effects import EVERY, PLAIN

MOST = 400  # names that are looked into
UNASKED = {  # what no call of a module comes to unless its code names it
    *("__init__", "__repr__", "extra_repr", "reset_parameters", "reset_running_stats", "_load_from_state_dict"),
    *("__doc__", "__module__", "__annotations__", "__dict__", "__weakref__", "__parameters__", "__orig_bases__"),
    *("__firstlineno__", "__static_attributes__"),
}
BLIND = {
    "getattr",
    "setattr",
    "vars",
    "globals",
    "locals",
    "eval",
    "exec",
    "compile",
    "__import__",
    "environ",
    "getenv",
    "attrgetter",
    "methodcaller",
}
NAMING = {  # by which a function may come to know what its class is called; so do texts that are put together
    *("__class__", "__name__", "__qualname__", "__mro__", "__bases__", "_get_name", "__str__"),
    *("type", "str", "repr", "format", "ascii", "join", "print"),
}
JOINING = {code for name, code in dis.opmap.items() if name.startswith(("FORMAT_", "CONVERT_"))}
IMPORT = dis.opmap["IMPORT_NAME"]
NONE = object()
OPERATORS = (
    *("__add__", "__sub__", "__mul__", "__truediv__", "__pow__", "__matmul__", "__neg__", "__abs__", "__getitem__"),
    *("__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rpow__", "__rmatmul__", "__setitem__", "__len__"),
    *("__iadd__", "__isub__", "__imul__", "__itruediv__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *("__and__", "__or__", "__invert__", "__bool__", "__float__", "__int__"),
)
BASES = (nn.Module, torch.autograd.Function, Tensor, nn.Parameter, object)
BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodWrapperType,
)
METACLASSES = (type, type(torch.autograd.Function))
ASIDE = ("torch.overrides", "torch._jit_internal", "torch.jit", "torch.fx", "torch.compiler", "torch._dynamo", "typing")
LOADED, TENSORS = dict(vars(nn.Module)), dict(vars(Tensor))
HOOKS = [name for name in vars(modules) if name.startswith("_global_") and name.endswith("hooks")]


class Unknown(Exception):
    """Something is read that cannot be named."""


def fingerprint(module: nn.Module) -> str:
    """Return what stands for the source of all that a module's call reads, or raise :class:`Unknown`."""
    _refuse_hooks()
    walk = _Walk()
    for part in module.modules():
        if type(part) in BASES or type(type(part)) is not type:
            raise Unknown(f"a {type(part).__name__}")
        walk.read_class(type(part))
    for name in OPERATORS:
        walk.note_method(name)
    if named := walk.left_out & walk.names:
        raise Unknown(f"{min(named)} of a class")
    if walk.naming:
        walk.lines += [_name(type(part)) for part in module.modules()]
    return hashlib.sha256("\n".join(walk.lines).encode()).hexdigest()


def configuration(module: nn.Module) -> dict[str, str]:
    """Return a module's words and numbers and the forms of its tensors; raise :class:`Unknown` otherwise."""
    settings: dict[str, str] = {}
    for name, part in module.named_modules():
        settings[f"mode {name}"] = str(part.training)
        for key, value in vars(part).items():
            if key not in EVERY:
                settings[f"{name}.{key}"] = words(value)
    for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, t in tensors:
            settings[f"{kind} {name}"] = f"{tuple(t.shape)} {t.dtype} {t.device.type}"
    return settings


def words(value: Any) -> str:
    """Return a plain value, or a container of such, in words; raise :class:`Unknown` for any other."""
    if type(value) in PLAIN:
        return repr(value)
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(words, value))})"
    if type(value) is dict:
        return f"dict({', '.join(f'{words(k)}: {words(v)}' for k, v in value.items())})"
    if type(value) in (set, frozenset):
        return f"set({', '.join(sorted(map(words, value)))})"
    raise Unknown(f"a {type(value).__name__}")


def _refuse_hooks() -> None:
    """Refuse to name what is called where hooks, modes or other calls of all modules may change its answer."""
    if any(getattr(modules, name) for name in HOOKS):
        raise Unknown("hooks on all modules")
    others = [mode for mode in _get_current_function_mode_stack() if not isinstance(mode, DeviceContext)]
    if others or torch._C._len_torch_dispatch_stack():  # a default device is not asked while a module is probed
        raise Unknown("a mode of torch")
    now = vars(nn.Module)
    if any(now.get(name) is not value and not _counts_modules(now.get(name)) for name, value in LOADED.items()):
        raise Unknown("another torch.nn.Module")


def _counts_modules(value: Any) -> bool:
    """Whether a function is what torch.compile puts around the constructor of all modules, which changes no call."""
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    return (
        guard is not None
        and getattr(value, "__code__", None) in guard.install_generation_tagging_init.__code__.co_consts
    )


class _Walk:
    """All that is read from some classes on, in lines: functions and classes once each, in the order they are met."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.met: dict[int, tuple[int, Any]] = {}
        self.names: set[str] = set()  # that functions read
        self.left_out: set[str] = set()
        self.naming = False

    def note(self, name: str, value: Any) -> None:
        """Enter what a name stands for."""
        if len(self.lines) > MOST:
            raise Unknown("more names than are looked into")
        if id(value) in self.met:
            self.lines.append(f"{name} = {self.met[id(value)][0]}")
            return
        if isinstance(value, types.FunctionType | type):
            self.met[id(value)] = len(self.met), value
        self.lines.append(f"{name} = {self._description(name, value)}")

    def note_method(self, name: str) -> None:
        """Enter what tensors have under a name, where it is not what torch was loaded with."""
        value = inspect.getattr_static(Tensor, name, NONE)
        if value is not NONE and value is not TENSORS.get(name):
            self.note(f"Tensor.{name}", value)

    def read_class(self, cls: type) -> None:
        """Enter a class and those that it inherits, but for the common ones of torch."""
        if type(cls) not in METACLASSES:
            raise Unknown(f"a class of class {type(cls).__name__}")
        for base in cls.__mro__:
            self.met.setdefault(id(base), (len(self.met), base))
            self.lines.append(f"class {_name(base) if _of_others(base) else ''}")
            for name, value in {} if base in BASES else vars(base).items():
                if name not in UNASKED:
                    self._note_member(cls, name, value)

    def _note_member(self, cls: type, name: str, value: Any) -> None:
        """Enter what a class has; what cannot be named is left out where no call comes to it unless code names it."""
        lines, met, names, naming = len(self.lines), dict(self.met), set(self.names), self.naming
        try:
            self.note(name, value)
        except Unknown:
            if not issubclass(cls, nn.Module) or hasattr(nn.Module, name) or name.startswith("__"):
                raise
            self.lines[lines:] = [f"{name} is left out"]
            self.met, self.names, self.naming = met, names, naming
            self.left_out.add(name)

    def _description(self, name: str, value: Any) -> str:
        if isinstance(value, staticmethod | classmethod):
            self.note(name, value.__func__)
            return type(value).__name__
        if isinstance(value, property):
            for function in (value.fget, value.fset, value.fdel):
                self.note(name, function)
            return "property"
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, BUILT_IN):
            return _built_in(value)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, torch.layout | torch.memory_format):
            return str(value)
        return words(value)

    def _class(self, cls: type) -> str:
        """Enter a class that a function names, where it is not one of torch or Python itself."""
        if not _of_others(cls):
            self.read_class(cls)
        return f"class {_name(cls)}"

    def _function(self, function: types.FunctionType) -> str:
        """Enter what a function reads; return its source, its defaults and what surrounds it."""
        if _from(function, ASIDE) and _in_place(function):
            return f"function {_name(function)}"
        names = _names(function.__code__)
        source = _source(function.__code__, function.__qualname__, _imports_of(function, names))
        if blind := names & (UNASKED | BLIND):
            raise Unknown(f"{min(blind)} in {_name(function)}")
        self.names |= names
        self.naming = self.naming or bool(names & NAMING) or _joins(function.__code__)
        for name, value in [*_read(function, names), *_closure_of(function)]:
            self.note(name, value)
        for name in sorted(names):
            self.note_method(name)
        return f"{source} {words(function.__defaults__)} {words(function.__kwdefaults__)} {words(vars(function))}"


def _read(function: types.FunctionType, names: set[str]) -> Iterator[tuple[str, Any]]:
    """The values that a function's global names have, and those of the modules among them."""
    todo = [(name, function.__globals__.get(name, getattr(builtins, name, NONE))) for name in sorted(names)]
    seen: set[int] = set()
    while todo:
        name, value = todo.pop()
        if value is NONE:
            continue
        yield name, value
        if isinstance(value, types.ModuleType) and id(value) not in seen:
            seen.add(id(value))
            todo += [(f"{name}.{key}", vars(value)[key]) for key in sorted(names) if key in vars(value)]


def _closure_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The values of the function around a function."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"around it {name}", cell.cell_contents
        except ValueError:
            raise Unknown("an empty cell") from None


def _names(code: types.CodeType) -> set[str]:
    """All names that a function and those within it read."""
    if IMPORT in code.co_code[::2]:
        raise Unknown(f"an import in {code.co_name}")
    return set(code.co_names).union(*map(_names, _inner(code)))


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [one for one in code.co_consts if isinstance(one, types.CodeType)]


def _imports_of(function: types.FunctionType, names: set[str]) -> tuple[str, ...]:
    """The global names that come from elsewhere: calls of what they hold are compiled otherwise."""
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    here = (None, function.__module__)
    foreign = {
        n for n, v in values.items() if isinstance(v, types.ModuleType) or getattr(v, "__module__", None) not in here
    }
    return tuple(sorted(foreign))


@functools.cache
def _source(code: types.CodeType, qualname: str, imported: tuple[str, ...]) -> str:
    """Return the source of a function, which must give the code that runs."""
    *owners, name = qualname.split(".")
    try:
        source = inspect.getsource(code)
        before = "".join(f"import {name}\n" for name in imported)
        around = _around(owners, code.co_freevars) if source[0].isspace() else ""
        todo = [compile(before + around + source, "", "exec", dont_inherit=True)]
    except (OSError, TypeError, SyntaxError):
        raise Unknown(f"{qualname} has no source") from None
    while todo:
        inner = todo.pop(0)
        if inner.co_name == name and _same(inner, code):
            return _bare(source)
        todo += _inner(inner)
    raise Unknown(f"{qualname} is not what its source says")


def _around(owners: Sequence[str], free: Sequence[str]) -> str:
    """The function and the class that stand around an indented function: its names are compiled by what they are."""
    function = f"def around({', '.join(free)})" if "<locals>" in owners else "if True"
    return f"{function}:\n" + "".join(f" class {name}:\n" for name in owners[-1:] if name != "<locals>")


def _same(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes do the same."""
    both = [(c.co_code, c.co_names, c.co_varnames, c.co_freevars, c.co_cellvars) for c in (one, other)]
    if both[0] != both[1] or len(one.co_consts) != len(other.co_consts):
        return False
    return all(map(_same_constant, one.co_consts, other.co_consts))


def _same_constant(one: Any, other: Any) -> bool:
    if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
        return _same(one, other)
    return (type(one), repr(one)) == (type(other), repr(other))


def _of_others(cls: type) -> bool:
    """Whether a class is one of torch or Python itself, which its name stands for."""
    return _from(cls, ("torch", "builtins", *sys.stdlib_module_names)) and _in_place(cls)


def _joins(code: types.CodeType) -> bool:
    """Whether a function or one within it puts texts together, in which the name of a class may be."""
    formats = any(isinstance(one, str) and "%" in one for one in code.co_consts)
    return formats or bool(JOINING & set(code.co_code[::2])) or any(map(_joins, _inner(code)))


def _bare(source: str) -> str:
    """A function's source without comments, docstrings and annotations, which no call reads."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            node.body = node.body[ast.get_docstring(node) is not None :] or [ast.Pass()]
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(tree)


def _name(one: Any) -> str:
    return f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', '')}"


def _from(one: Any, homes: tuple[str, ...]) -> bool:
    home = getattr(one, "__module__", None) or ""
    return any(home == name or home.startswith(f"{name}.") for name in homes)


def _in_place(one: Any) -> bool:
    """Whether a function or class is what its module has under its name."""
    place: Any = sys.modules.get(one.__module__)
    for name in one.__qualname__.split("."):
        place = getattr(place, name, None)
    return place is one


def _built_in(value: Any) -> str:
    owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
    home = owner.__name__ if isinstance(owner, type | types.ModuleType) else type(owner).__name__
    return f"built in {home}.{value.__name__}"
