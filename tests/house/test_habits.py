"""Forms, hooks and pages for who carries this on say what is there."""

import pathlib
import re
from collections import Counter

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*-*.yml"))
PAGES = [*ROOT.glob("*.md"), ROOT / ".github/pull_request_template.md", *FORMS]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
NAMED = re.compile(r"`((?:tools|tests|docs|benchmarks|src)/[\w/.-]+|[A-Z]+\.md)`")
PATTERN = re.compile(r"\b(NAME|ROOM|GROUP|CASE|METHOD)\b")  # stands for a name of the reader's own


def test_what_is_checked_at_a_commit_is_what_continuous_integration_checks():
    [own] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert own["repo"] == "local"
    assert all(hook["language"] == "system" for hook in own["hooks"]), "nothing is downloaded"
    quick = [hook["entry"] for hook in own["hooks"] if "stages" not in hook]
    lines = [line.strip() for line in (ROOT / ".ci/run").read_text().splitlines()]
    assert [line for line in lines if line.startswith(("ruff", "mypy"))] == quick
    named = [word for hook in own["hooks"] for word in hook["entry"].split() if "/" in word]
    assert all((ROOT / path).exists() for path in named)


@pytest.mark.parametrize("form", FORMS, ids=lambda p: p.stem)
def test_a_form_can_be_filled_in(form):
    found = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(found)
    ids = [part["id"] for part in found["body"]]
    assert len(set(ids)) == len(ids)
    assert {part["type"] for part in found["body"]} <= {"input", "textarea", "checkboxes", "dropdown", "markdown"}
    assert all(part["attributes"]["label"] for part in found["body"])


def test_both_forms_are_there():
    assert [yaml.safe_load(form.read_text())["name"] for form in FORMS] == ["Add a method", "A method's numbers differ"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_a_page_names_are_there(page):
    text = page.read_text()
    found = {*LINK.findall(text), *NAMED.findall(text)}
    assert [name for name in sorted(found) if not PATTERN.search(name) and not (ROOT / name).exists()] == []


def test_no_two_test_files_have_one_name():
    """Of two modules of one name, outside of packages, pytest collects neither those nor any other test."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    assert [name for name, count in Counter(path.name for path in files).items() if count > 1] == []
