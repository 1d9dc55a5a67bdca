"""The stub: it is the catalogue's, and type checkers tell right uses from wrong ones by it."""

import ast
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
import torch

import normkit as nk
import stub
from normkit import catalog

ROOT = stub.SOURCES.parent
USES = pathlib.Path(__file__).with_name("uses.py")
WRONG = [number for number, line in enumerate(USES.read_text().splitlines(), 1) if "# wrong" in line]
PACKED = ["src", "tools", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]
MADE = ["__pycache__", "*.so", "*.egg-info", "__init__.pyi"]  # by an install


def copy(folder):
    """Copy what a build needs, without what a build made."""
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*MADE))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(folder, what):
    """Build as pip does, without a compiler; the name of what was built."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"CC": "/bin/false"}
    call = f"from setuptools import build_meta; print(build_meta.{what}('.'))"
    done = subprocess.run([sys.executable, "-c", call], cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    """The package as an editable install leaves it."""
    folder = copy(tmp_path_factory.mktemp("editable"))
    build(folder, "build_editable")
    return folder / "src/normkit"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package as it comes in a wheel, which was built from the archive of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(build(copy(folder), "build_sdist")) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4
        archive.extractall(folder / "unpacked", **safe)
    [sources] = (folder / "unpacked").iterdir()
    with zipfile.ZipFile(build(sources, "build_wheel")) as wheel:
        wheel.extractall(folder / "installed")
    return folder / "installed/normkit"


def test_it_comes_with_a_wheel_and_with_an_editable_install(editable, installed):
    made = [(package / "__init__.pyi").read_text(encoding="utf-8") for package in (editable, installed)]
    assert made[0] == made[1]
    assert (installed / "py.typed").is_file()


def test_where_there_is_no_torch_it_is_the_same(editable):
    """But for where a name of torch's is imported from."""

    def own(text):
        return [line for line in text.splitlines() if not line.startswith("from torch")]

    assert own((editable / "__init__.pyi").read_text(encoding="utf-8")) == own(stub.text())


def test_the_right_uses_run_and_the_wrong_ones_do_not():
    right = [line for line in USES.read_text().splitlines() if "# wrong" not in line]
    exec(compile("\n".join(right), USES, "exec"), {"__name__": "uses"})
    for number in WRONG:
        line = USES.read_text().splitlines()[number - 1]
        with pytest.raises((TypeError, ValueError, AttributeError)):
            exec(line, {"nk": nk, "torch": torch, "x": torch.ones(2, 768)})


def mypy(folder, package):
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--output", "json", "--follow-imports", "silent"]
    command += ["--config-file", ROOT / "pyproject.toml"]
    done = subprocess.run(
        [*command, USES.name], capture_output=True, text=True, cwd=folder, env=os.environ | {"MYPYPATH": package.parent}
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(pathlib.Path(error["file"]).name == USES.name for error in found), found
    return [error["line"] for error in found if error["severity"] == "error"]


def pyright(folder, package):
    """As basedpyright has it: the same checker, whose package brings all that it needs."""
    pytest.importorskip("basedpyright")
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(package.parent)], "include": ["."]}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", folder], capture_output=True, text=True, cwd=folder)
    return [error["range"]["start"]["line"] + 1 for error in json.loads(done.stdout)["generalDiagnostics"]]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_checker_refuses_the_wrong_uses_and_no_other(checker, editable, tmp_path):
    shutil.copy(USES, tmp_path)
    assert sorted(set(checker(tmp_path, editable))) == WRONG


def test_a_star_gives_every_name_and_nothing_else():
    scope = {}
    exec("from normkit import *", scope)
    assert {"RMSNorm", "InstanceNorm2d", "create", "Decoder", "inverted_softmax"} <= set(scope)
    assert set(scope) - {"__builtins__"} == set(nk.__all__)
    assert len(set(nk.__all__)) == len(nk.__all__)
    assert not {"importlib", "functools", "check"} & set(scope)


def test_every_name_of_the_stub_is_there():
    names = ast.parse(stub.text())
    defined = [node.name for node in names.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert {nk.card(name).entry.__name__ for name in nk.methods()} <= set(defined)
    assert all(hasattr(nk, name) for name in defined)


PLAIN = '''
from collections.abc import Callable, Sequence

from torch import Tensor, nn

import normkit as nk


@nk.method("plain-core", shape="N heads T C", inputs={"k": "N heads S C", "v": "N heads S C"}, example={"heads": 2})
class PlainCore(nk.AttentionCore):
    """Attend."""

    def __init__(self, head_dim: int, *, heads: int, causal: bool = False, norm: nn.Module | None = None):
        super().__init__(head_dim, heads, causal)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return q


@nk.method("plain-map", shape="... C")
def plain_map(x: Tensor, *, by: Callable[[Tensor], Tensor] | None = None) -> Sequence[Tensor] | None:
    """Map."""
'''


def test_annotations_that_are_objects_are_as_the_file_has_them(tmp_path, monkeypatch):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/methods.py").write_text(PLAIN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    names = stub.Names()
    try:
        importlib.import_module("plain.methods")
        core, function = ("\n".join(stub.blocks(nk.card(name), names)) for name in ("plain-core", "plain-map"))
    finally:
        for name in ("plain-core", "plain-map"):
            catalog._cards.pop(name, None)
    assert "head_dim: int, *, heads: int, causal: bool = False, norm: nn.Module | None = None" in core
    assert "(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ..." in core
    assert (
        "plain_map(x: Tensor, *, by: Callable[[Tensor], Tensor] | None = None) -> Sequence[Tensor] | None:" in function
    )
    assert {"from torch import nn as nn", "from collections.abc import Callable"} <= names.lines
