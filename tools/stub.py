"""Write the package's stub from the catalogue: what type checkers and editors read of `import normkit`.

    python tools/stub.py          # src/normkit/__init__.pyi
    python tools/stub.py PATH     # another place

Methods are found by name when they are first asked for, which no type checker follows. The stub has each as a class or
a function with its arguments, those of the classes that it stands in for among them, and its first line. `setup.py`
makes it for every wheel and every editable install. There is no torch where packages are built, so as a program this
file puts stand-ins in the place of torch and NumPy: cards and arguments need neither.
"""

import ast
import builtins
import inspect
import os
import pathlib
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

SOURCES = pathlib.Path(__file__).parents[1] / "src"
if __name__ == "__main__":
    import standins

    standins.install("torch", "numpy")
    sys.path.insert(0, str(SOURCES))

import normkit as nk
from normkit import catalog, reference
from normkit.catalog import Card
from normkit.kinds.arguments import read

PATH = SOURCES / "normkit/__init__.pyi"
HEAD = '''"""Every normalization method of deep learning in one place. Made by tools/stub.py from the catalogue."""'''
PLACED = {"device": "torch.device | str | int | None", "dtype": "torch.dtype | None"}


class Names:
    """What the annotations of the stub need to be imported."""

    def __init__(self):
        self.lines = {"import torch", "from torch import Tensor", "from typing import overload"}
        self.seen: dict[str, Any] = {}

    def of(self, annotation: str, entry: Any) -> str:
        """Import every name of an annotation from where it is made."""
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                self.add(node.id, entry)
        return annotation

    def add(self, name: str, entry: Any) -> None:
        """Import a name that the files of a class and its bases know."""
        owners = [*getattr(entry, "__mro__", ()), entry]
        scope = next(s for s in (vars(sys.modules[o.__module__]) for o in owners) if name in s)
        value = scope[name]
        if name not in self.seen:
            self.seen[name] = value
            self.lines.add(self.line(name, value, scope["__name__"]))
        elif self.seen[name] != value:
            raise ValueError(f"{entry.__name__}: {name} is another thing than in the methods before it")

    def line(self, name: str, value: Any, here: str) -> str:
        """Write the import of a name from where it is made, or from ``here``."""
        if isinstance(value, types.ModuleType):
            package, _, last = value.__name__.rpartition(".")
            return f"from {package} import {last} as {name}" if package else f"import {value.__name__} as {name}"
        made = getattr(value, "__module__", None) or here
        known = getattr(sys.modules.get(made), getattr(value, "__name__", name), None) is value
        return f"from {made if known else here} import {name}"


def text() -> str:
    """Return the stub."""
    names = Names()
    body = [block for name in nk.methods() for block in blocks(nk.card(name), names)]
    whole = [HEAD, *sorted(names.lines), *own(), *exports(), "__version__: str", listed(), *body]
    return "\n".join(whole) + "\n"


def write(path: pathlib.Path = PATH) -> None:
    """Write the stub, whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text(), encoding="utf-8")
    os.replace(beside, path)


def own() -> list[str]:
    """What `normkit` itself holds: each as it is found there."""
    return [f"from {module} import {name} as {name}" for name, module in nk.HERE.items()]


def exports() -> list[str]:
    """What the rooms have beside methods."""
    rooms = nk._exports().items()
    return [compared(), *(f"from {room} import {name} as {name}" for name, room in rooms if name != "compare")]


def compared() -> str:
    """`compare`, whose arguments are those of the settings."""
    signature = inspect.signature(nk.compare)
    given = ", ".join(f"{p.name}: {p.annotation} = None" for p in signature.parameters.values())
    imports = ["collections.abc import Callable, Mapping, Sequence", "pathlib import Path", "typing import Any"]
    lines = [f"from {line}" for line in (*imports, "normkit.lab.result import Result")]
    line = (nk.compare.__doc__ or "").partition("\n")[0]
    return "\n".join([*lines, f"def compare(*, {given}) -> Result:", f"    {quoted(line)}"])


def listed() -> str:
    """Every name, as `from normkit import *` gives them."""
    return f"__all__ = {nk.__all__!r}"


def blocks(card: Card, names: Names) -> Iterator[str]:
    """A method, and a class for each alias that is written as one."""
    if not isinstance(card.entry, type):
        yield function(card, names)
        return
    yield from klass(card.entry.__name__, card, names)
    for alias, brought in card.aliases.items():
        if alias[:1].isupper():
            yield from klass(alias, card, names, brought) if brought else [f"{alias} = {card.entry.__name__}"]


def function(card: Card, names: Names) -> str:
    """A function: arguments, result and first line."""
    signature = as_written(inspect.signature(card.entry), card.entry)
    given = ", ".join(written(signature.parameters.values(), card.entry, names))
    returned = annotated("", signature.return_annotation, card.entry, names).replace(":", " ->", 1)
    return f"def {card.entry.__name__}({given}){returned}:\n    {quoted(card.summary)}\n    ..."


def klass(name: str, card: Card, names: Names, brought: dict | None = None) -> list[str]:
    """A class: its arguments in every form, what a call takes, and the first line; the rest is the class's own."""
    entry = card.entry
    if brought is None:
        module = "_" + entry.__module__.rsplit(".", 1)[1]
        names.lines.add(f"import {entry.__module__} as {module}")
        base, line = f"{module}.{entry.__name__}", card.summary
    else:
        base, line = entry.__name__, f"{entry.__name__} with {reference.write(brought)}."
    own = as_written(card.signature, entry.__init__).parameters.values()
    takes = [p.replace(default=(brought or {}).get(p.name, p.default)) for p in own]
    forms = [takes, *(form(read(text), takes) for text in card.called.values())]
    lines = [f"class {name}({base}):", f"    {quoted(line)}"]
    for parameters in forms:
        lines += ["    @overload"] * (len(forms) > 1)
        lines += [f"    def __init__({', '.join(['self', *written(parameters, entry, names)])}) -> None: ..."]
    return [*lines, *called(card, names)]


def form(order: dict[str, str], takes: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """The arguments as another class has them: its own in its order, and behind them what is left of ours."""
    by_name = {p.name: p for p in takes}
    placed = [
        by_name[our].replace(name=their, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for their, our in order.items()
    ]
    rest = [p.replace(kind=p.KEYWORD_ONLY) for p in takes if p.name not in order.values()]
    needed = max((i for i, p in enumerate(placed) if p.default is p.empty), default=0)
    placed[:needed] = [
        p.replace(default=p.empty) for p in placed[:needed]
    ]  # none may be left out before one that may not
    return [*placed, *rest]


def called(card: Card, names: Names) -> list[str]:
    """What a call of the module takes and returns."""
    forward = getattr(card.entry, "forward", None)
    if not isinstance(forward, types.FunctionType):
        return []
    signature = as_written(inspect.signature(forward), forward)
    given = ", ".join(["self", *written(list(signature.parameters.values())[1:], card.entry, names)])
    returned = annotated("", signature.return_annotation, card.entry, names).replace(":", " ->", 1)
    return [f"    def __call__({given}){returned}: ..."]


def as_written(signature: inspect.Signature, function: Callable[..., Any]) -> inspect.Signature:
    """The signature with annotations as the file has them: without its `__future__` import they are objects."""
    own = [p.annotation for p in signature.parameters.values()] + [signature.return_annotation]
    if all(isinstance(annotation, str) or annotation is signature.empty for annotation in own):
        return signature
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    texts = {arg.arg: ast.unparse(arg.annotation) for arg in ast.walk(node.args) if getattr(arg, "annotation", None)}
    takes = [p.replace(annotation=texts.get(p.name, p.annotation)) for p in signature.parameters.values()]
    returned = signature.return_annotation if node.returns is None else ast.unparse(node.returns)
    return signature.replace(parameters=takes, return_annotation=returned)


def written(parameters, entry: Any, names: Names) -> Iterator[str]:
    """Each parameter as it is typed, the star before those that need their name."""
    starred = False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or p.kind is p.VAR_POSITIONAL
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        typed = f"{stars}{p.name}{annotated(p.name, p.annotation, entry, names)}"
        yield typed if p.default is p.empty else f"{typed} = {default(p.default)}"


def annotated(name: str, annotation: Any, entry: Any, names: Names) -> str:
    """A colon and the annotation; nothing where there is none."""
    if annotation is inspect.Signature.empty:
        return f": {PLACED[name]}" if name in PLACED else ""
    return f": {names.of(annotation, entry)}"


def default(value: Any) -> str:
    """A default as a stub may hold it."""
    plain = isinstance(value, bool | int | str | None) or (isinstance(value, float) and abs(value) < 1e300)
    return repr(value) if plain else "..."


def quoted(line: str) -> str:
    """A docstring."""
    return ("r" if "\\" in line else "") + f'"""{line}"""'


if __name__ == "__main__":
    catalog.ENTRY_POINTS = "none"  # methods of other packages are not of this one
    write(pathlib.Path(sys.argv[1]) if sys.argv[1:] else PATH)
