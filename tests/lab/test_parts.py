"""The lab's parts are those that its first page draws: plan, training, report, none importing from a later one."""

import ast
import itertools
from pathlib import Path

import pytest

from normkit import lab

FOLDER = Path(lab.__file__).parent
PARTS = [line.split() for line in lab.__doc__.split("\n") if line.startswith("    ")]
STARTS = [folder != before for (folder, *_), (before, *_) in zip(PARTS, [[""], *PARTS], strict=False)]
PLACE = {  # a part that takes two lines is one
    name if folder == "." else f"{folder}.{name}": place
    for place, (folder, *names) in zip(itertools.accumulate(STARTS), PARTS, strict=True)
    for name in names
}


def test_every_file_is_in_one_part():
    there = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py") if path.stem != "__init__")
    assert sorted(PLACE) == sorted(".".join(path.parts) for path in there)


def imported(path):
    """The files of the lab that a file imports, inside of functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("normkit.lab"):
            module = node.module.removeprefix("normkit.lab").lstrip(".")
            yield from [module] if module in PLACE else [f"{module}.{one.name}".lstrip(".") for one in node.names]


@pytest.mark.parametrize("name", sorted(PLACE))
def test_no_file_imports_from_a_later_part(name):
    path = FOLDER.joinpath(*name.split(".")).with_suffix(".py")
    later = {other for other in imported(path) if PLACE[other] > PLACE[name]}
    assert not later
