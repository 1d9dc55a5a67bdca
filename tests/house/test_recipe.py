"""The recipe of the conda package has the versions, bounds and words of the project."""

import pathlib
import re

import pytest
import tomllib

import normkit as nk

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RECIPE = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8"))
CALLED = {"torch": "pytorch"}  # packages that have another name with conda


def conda(requirement):
    """A requirement of pip, as conda writes it."""
    name, bound = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
    return f"{CALLED.get(name, name)} {bound}".strip()


def test_the_version_is_that_of_the_package():
    assert RECIPE["schema_version"] == 1
    assert RECIPE["context"]["version"] == nk.__version__
    assert RECIPE["package"] == {"name": PROJECT["project"]["name"], "version": "${{ version }}"}


def test_the_bounds_are_those_of_the_project():
    needs = RECIPE["requirements"]
    assert needs["run"] == ["python", *map(conda, PROJECT["project"]["dependencies"])]
    assert needs["host"] == ["python", "pip", *map(conda, PROJECT["build-system"]["requires"])]
    assert RECIPE["build"]["skip"] == f'match(python, "{PROJECT["project"]["requires-python"].replace(">=", "<")}")'


def test_it_names_the_licence_and_what_the_package_is():
    about = RECIPE["about"]
    assert about["summary"] == PROJECT["project"]["description"]
    assert about["license"] == PROJECT["project"]["license"]
    assert [about["license_file"]] == PROJECT["project"]["license-files"]
    assert (ROOT / "recipe" / RECIPE["source"]["path"]).resolve() == ROOT


def test_what_is_called_after_the_build_is_a_command():
    imported, commands = RECIPE["tests"]
    assert imported["python"]["imports"] == nk.__name__
    assert all(command.split()[0] in PROJECT["project"]["scripts"] for command in commands["script"])
