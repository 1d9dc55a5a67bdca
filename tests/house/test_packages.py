"""Packages that only some commands need: what brings them, and who notices that one is missing."""

import importlib.util
import os
import pathlib
import re
import shutil
import sys

import pytest
import tomllib
import torch

import forked
import normkit as nk
from normkit import cli, optional
from normkit.lab import api, rerank
from normkit.lab.fit import table
from normkit.lab.plan import data, tasks
from normkit.lab.plan.settings import Settings
from normkit.lab.training import engines
from normkit.text.candidates._tfidf import TfIdf
from normkit.text.candidates.aliases import Aliases
from normkit.text.candidates.dense import Dense
from normkit.text.decide.fusion import Fusion
from normkit.text.rescore.spelling import Spelling
from normkit.text.training.encoder import train_encoder
from normkit.text.training.lexical import train_lexical
from normkit.text.vocabulary import read_vocabulary

TESTS = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
GROUPS = PROJECT["optional-dependencies"]


def plain(name):
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


@pytest.fixture
def hidden(monkeypatch):
    """Hide packages as if they were not installed."""
    find = importlib.util.find_spec

    def hide(*names):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in names else find(name))

    return hide


@pytest.mark.parametrize("name", optional.GROUPS)
def test_every_optional_package_is_brought_by_the_group_that_the_error_names(name):
    distribution = {"sklearn": "scikit-learn", "yaml": "pyyaml"}.get(name, name)
    assert plain(distribution) in map(plain, GROUPS[optional.GROUPS[name]])


def brought(group):
    """A group, and all that it brings."""
    inner = re.findall(r"normkit\[(.*?)\]", " ".join(GROUPS[group]))
    return {group}.union(*(brought(name) for names in inner for name in names.split(",")))


def test_the_group_of_tests_brings_all_other_groups():
    assert brought("test") == set(GROUPS)


def test_the_groups_of_a_person_bring_the_old_ones():
    person = {name: brought(name) - {name} for name in ("compare", "models", "parallel")}
    assert person == {"compare": {"lab"}, "models": {"timm", "transformers", "datasets"}, "parallel": {"ray"}}
    own = {"check", "peers", "test", "docs", "bench"}  # of who works on normkit
    assert brought("all") == set(GROUPS) - own
    assert not {"bench", "ray", "timm", "docs"} & brought("check")


def test_the_first_command_of_the_readme_brings_nothing_that_only_some_models_need():
    assert not {"ray", "timm", "transformers", "datasets", "torchvision", "pandas"} & set(map(plain, GROUPS["lab"]))


def test_what_is_missing_is_named_at_once_with_the_command_that_installs_it(hidden):
    hidden("timm", "scipy", "rich")
    with pytest.raises(ValueError, match=re.escape("timm is not installed: pip install -c constraints.txt '.[timm]'")):
        optional.library("timm")
    with pytest.raises(ValueError, match=re.escape("rich, scipy are not installed: pip install -c constraints.txt")):
        optional.require_group("lab")
    with pytest.raises(ValueError, match=re.escape("'.[timm,lab]'")):
        optional.require("timm", "scipy")


@pytest.mark.parametrize(
    "package, use",
    [
        ("timm", lambda: tasks.load(Settings(model="timm:resnet18", data="digits"))),
        ("transformers", lambda: tasks.load(Settings(model="hf:nowhere"))),
        ("datasets", lambda: data.hugging_face("hf:nowhere")),
        ("sklearn", lambda: data.images_of("digits", None)),
        ("ray", lambda: engines.Ray(Settings(), "nowhere")),
        ("pyarrow", lambda: table.read("empty.parquet")),
        ("pyarrow", lambda: rerank.table("empty.parquet")),
        ("pyarrow", lambda: read_vocabulary("empty.parquet")),
        ("psutil", lambda: api.compare(norms=["layernorm"])),
        ("sklearn", lambda: TfIdf(["ab"], 1, 1)),
        ("sklearn", lambda: Fusion.fit([], [])),
        ("usearch", lambda: Dense(lambda texts: [[1.0]] * len(texts), exact=0).fit({"a": ["b"]})),
        ("rapidfuzz", lambda: Aliases().fit({"a": ["b"]})),
        ("rapidfuzz", Spelling),
        ("transformers", lambda: train_lexical([["a"]], [["a"]], "nowhere")),
        ("accelerate", lambda: train_encoder({"a": ["b"]}, "nowhere")),
    ],
)
def test_each_use_of_a_missing_package_says_what_to_install(package, use, hidden, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.parquet").touch()
    hidden(package)
    with pytest.raises(ValueError, match=rf"{package} is not installed: .*'\.\[{optional.GROUPS[package]}\]'"):
        use()


@pytest.mark.parametrize("command", [["compare"], ["report"], ["fit", "nowhere.csv"]], ids=" ".join)
def test_a_command_names_what_it_lacks_in_one_line(command, hidden, capsys):
    hidden("accelerate", "plotly")
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert "accelerate, plotly are not installed: pip install -c constraints.txt '.[lab]'" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("package, command", [("rich", ["watch", "."]), ("scipy", ["claim", "rmsnorm"])])
def test_a_command_that_needs_a_single_package_names_it(package, command, hidden, capsys):
    hidden(package)
    assert cli.main(command) == 2
    assert f"{package} is not installed: pip install -c constraints.txt '.[lab]'" in capsys.readouterr().err


def test_show_describes_a_method_without_what_judges_its_claims(hidden, capsys):
    hidden("scipy")
    assert cli.main(["show", "rmsnorm"]) == 0
    assert "Claims\n  not shown: scipy is not installed" in capsys.readouterr().out


def test_bits_are_not_allotted_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ValueError, match=r"allocate-bits: .* scipy, which is not installed"):
        nk.allocate_bits(torch.ones(2, 1), torch.zeros(1), torch.ones(2), target=0.2)


@pytest.mark.parametrize("at", ["in a file", "in a test"])
@pytest.mark.parametrize("ci", [False, True])
def test_a_skip_for_a_missing_package_fails_in_continuous_integration(at, ci, tmp_path):
    shutil.copy(TESTS / "conftest.py", tmp_path)
    skip = "pytest.importorskip('no_such_package', reason='of its own')\n"
    test = "import pytest\n" + (skip * (at == "in a file")) + "def test(): " + (skip if at == "in a test" else "pass\n")
    (tmp_path / "test_it.py").write_text(test)
    environment = {k: v for k, v in os.environ.items() if k != "CI"} | ({"CI": "true"} if ci else {})
    places = [str(TESTS.parent / "tools"), *filter(None, [environment.get("PYTHONPATH")])]  # as pyproject.toml has it
    environment["PYTHONPATH"] = os.pathsep.join(places)
    done = forked.run("-m", "pytest", "-p", "no:cacheprovider", "-rs", tmp_path, env=environment, cwd=tmp_path)
    assert ("skipped, though CI is set: of its own" in done.stdout) == ci, done.stdout + done.stderr
    assert (done.returncode in (0, 5)) == (not ci)
