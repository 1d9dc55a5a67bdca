"""What stands before a release is found, and the version has one place."""

import importlib.metadata
import pathlib
import re

import pytest
import tomllib
from setuptools.config.pyprojecttoml import read_configuration

import normkit as nk
import release

ROOT = pathlib.Path(__file__).parents[2]
READY = "# Changelog\n\n## 1.2.0, 2027-01-31\n\n- It is there.\n"


def test_the_version_is_written_once():
    assert release.version() == nk.__version__ == importlib.metadata.version("normkit")
    assert read_configuration(ROOT / "pyproject.toml", expand=True)["project"]["version"] == nk.__version__
    places = [*ROOT.glob("*.*"), *(ROOT / "src").rglob("*.py")]
    written = re.compile(rf"""version[_'"\s:=]+{re.escape(nk.__version__)}\b""")
    assert [p.name for p in places if p.is_file() and written.search(p.read_text())] == ["__init__.py"]
    assert nk.__version__ in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "given, problem",
    [
        ({}, None),
        ({"status": " M setup.py\n?? new.py\n"}, "not committed: setup.py, new.py"),
        ({"changelog": "## 1.2.0, unreleased\n"}, "CHANGELOG.md has no section '## 1.2.0, YYYY-MM-DD'"),
        ({"changelog": READY.replace("1.2.0", "1x2.0")}, "CHANGELOG.md has no section"),
        ({"tags": ["v1.1.0", "v1.2.0"]}, "v1.2.0 is released"),
    ],
)
def test_what_stands_before_a_release_is_named(given, problem):
    found = release.problems("1.2.0", **{"changelog": READY, "status": "", "tags": ["v1.1.0"], **given})
    assert found == [] if problem is None else [one for one in found if problem in one] == found != []


def test_the_tools_of_a_release_have_exact_versions():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert {line.partition("==")[0] for line in lines} >= set(release.TOOLS)


def test_the_citation_names_title_and_licence_of_the_project():
    text = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"license: {project['license']}\n" in text
    assert f'title: "{project["name"]}: ' in text
