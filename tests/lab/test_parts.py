"""The lab's parts are those that its first page draws: plan, training, report, none importing from a later one."""

import ast
from pathlib import Path

import pytest

from normkit import lab

FOLDER = Path(lab.__file__).parent
PARTS = [line.split()[1:] for line in lab.__doc__.split("\n") if line.startswith("    ")]
PLACE = {name: place for place, names in enumerate(PARTS) for name in names}


def test_every_file_is_in_one_part():
    assert sorted(name for names in PARTS for name in names) == sorted(
        path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"
    )


def imported(path):
    """The files of the lab that a file imports, inside of functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("normkit.lab"):
            names = node.module.split(".")[2:]
            yield from names[:1] or [alias.name for alias in node.names]


@pytest.mark.parametrize("name", sorted(PLACE))
def test_no_file_imports_from_a_later_part(name):
    later = {other for other in imported(FOLDER / f"{name}.py") if PLACE[other] > PLACE[name]}
    assert not later
