"""Where goldens are: in a folder `goldens` beside a module, or in one of a package around it."""

import sys
from collections.abc import Iterator
from pathlib import Path

from normkit import catalog, families

OURS = catalog.HOME.parents[1] / "tests" / "goldens"  # of a checkout of the repository


def beside(module: str) -> Iterator[Path]:
    """Return the folders that goldens of an imported module may lie in, the nearest first."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    yield from dict.fromkeys(Path(file).parent / "goldens" for file in files if file)


def cases(name: str, module: str) -> dict[str, Path]:
    """Return the goldens of a method, a flow or another thing that a module holds, by the names of their cases."""
    name = catalog.card(name).name if "." in name else name  # my_package.my_norm
    paths = (path for folder in beside(module) for path in sorted((folder / name).glob("*")))
    return {path.stem: path for path in paths if path.suffix in (".npz", ".json")}


def foreign(name: str, kind: str) -> str | None:
    """Return the module of a method or another thing that another package holds; None of ours."""
    module = module_of(name, kind) or "normkit"
    return None if module.partition(".")[0] == "normkit" else module


def folder_of(name: str, kind: str) -> Path:
    """Return the folder that a new golden goes to: beside the module, or the repository's."""
    module = foreign(name, kind)
    if module is not None:
        folders = [*beside(module)]
        return next((folder for folder in folders if folder.is_dir()), folders[0])
    if (OURS / name).is_dir() or (OURS.is_dir() and module_of(name, kind) is not None):
        return OURS
    thing = kind if kind in families.KINDS else "method"
    lies = f"no {thing} {name!r} yet, beside whose module its goldens would lie"
    raise ValueError(f"{lies}: import the module before, or name a folder")


def module_of(name: str, kind: str) -> str | None:
    """Return the module that holds a method, or a thing of another kind; None if there is no such thing."""
    if kind in families.KINDS:
        family = families.family(kind)
        return family.module(name) if name in family else None
    try:
        return catalog.card(name).module
    except ValueError:
        return None
