"""The stub: it is the catalogue's, and type checkers tell right uses from wrong ones by it."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

import normkit as nk
import stub

USES = pathlib.Path(__file__).with_name("uses.py")
WRONG = [number for number, line in enumerate(USES.read_text().splitlines(), 1) if "# wrong" in line]


def test_it_is_what_the_tool_makes_of_the_catalogue():
    assert stub.PATH.read_text(encoding="utf-8") == stub.text(), "run `python tools/stub.py`"


def test_it_comes_with_the_package():
    setup = (stub.PATH.parents[2] / "pyproject.toml").read_text()
    assert '"*.pyi"' in setup


def test_the_right_uses_run_and_the_wrong_ones_do_not():
    right = [line for line in USES.read_text().splitlines() if "# wrong" not in line]
    exec(compile("\n".join(right), USES, "exec"), {"__name__": "uses"})
    for number in WRONG:
        line = USES.read_text().splitlines()[number - 1]
        with pytest.raises((TypeError, ValueError, AttributeError)):
            exec(line, {"nk": nk, "torch": torch, "x": torch.ones(2, 768)})


def mypy():
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--show-absolute-path", "--output", "json", str(USES)],
        capture_output=True,
        text=True,
        cwd=stub.PATH.parents[2],
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(pathlib.Path(error["file"]).name == USES.name for error in found), found
    return [error["line"] for error in found if error["severity"] == "error"]


def pyright():
    """As basedpyright has it: the same checker, whose package brings all that it needs."""
    pytest.importorskip("basedpyright")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "basedpyright",
            "--outputjson",
            "--level",
            "error",
            "--pythonpath",
            sys.executable,
            str(USES),
        ],
        capture_output=True,
        text=True,
        cwd=stub.PATH.parents[2],
    )
    return [error["range"]["start"]["line"] + 1 for error in json.loads(done.stdout)["generalDiagnostics"]]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_checker_refuses_the_wrong_uses_and_no_other(checker):
    assert sorted(set(checker())) == WRONG


def test_a_star_gives_every_name_and_nothing_else():
    scope = {}
    exec("from normkit import *", scope)
    assert {"RMSNorm", "InstanceNorm2d", "create", "Decoder", "inverted_softmax"} <= set(scope)
    assert set(scope) - {"__builtins__"} == set(nk.__all__)
    assert not {"importlib", "functools", "check"} & set(scope)


def test_every_name_of_the_stub_is_there():
    names = stub.ast.parse(stub.PATH.read_text(encoding="utf-8"))
    defined = [node.name for node in names.body if isinstance(node, stub.ast.ClassDef | stub.ast.FunctionDef)]
    assert {nk.card(name).entry.__name__ for name in nk.methods()} <= set(defined)
    assert all(hasattr(nk, name) for name in defined)
