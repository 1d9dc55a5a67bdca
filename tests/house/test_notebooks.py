"""The notebooks of the site run, and show what they showed when they were written."""

import doctest
import importlib.util
import json
import pathlib

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)


def test_there_are_five_and_each_is_on_the_site():
    names = [path.stem for path in notebooks.paths()]
    assert names == ["cheaper", "choose", "compare", "look", "mend"]
    menu = (DOCS.parent / "mkdocs.yml").read_text()
    assert all(f"notebooks/{name}.md" in menu for name in names)


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_showed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = notebooks.read(path)
    for now, before in zip(notebooks.run(notebook, path.name), notebooks.kept(notebook), strict=True):
        assert notebooks.alike(now, before), f"python docs/notebooks.py {path.stem} writes it anew"
    page = notebooks.page(path)
    assert all(shown in page for shown in notebooks.kept(notebook))


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
def test_a_notebook_has_the_form_that_jupyter_reads(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        assert ("outputs" in cell) == ("execution_count" in cell) == (cell["cell_type"] == "code")


def test_outputs_are_compared_by_words_and_numbers():
    assert doctest.testmod(notebooks).failed == 0
    assert not notebooks.alike("2 found", "two found")
    assert not notebooks.alike("a 1", "a 1 2")
