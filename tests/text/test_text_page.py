"""The picture on the page about texts is of the demonstration that the page runs."""

import pathlib
import xml.etree.ElementTree as xml

import pytest

from normkit import text
from normkit.text import samples
from normkit.text.match import Candidate, Match
from normkit.text.measures.evaluation import evaluate
from normkit.text.measures.picture import picture

PICTURE = pathlib.Path(__file__).parents[2] / "docs/text-confusions.svg"


def test_the_picture_is_that_of_the_countries():
    pytest.importorskip("pycountry")
    task = samples.countries()
    found = text.Normalizer().fit(task.vocabulary).tune(task.mentions, task.gold)
    assert PICTURE.read_text(encoding="utf-8") == picture(found, {id: own[0] for id, own in task.vocabulary.items()})


def test_a_picture_has_a_cell_for_each_pair_darker_the_more_often():
    said = [("a", "b"), ("a", "b"), ("b", "<c>"), ("c", "c"), (None, "a"), ("a", None)]
    matches = [Match("x", id, 1.0, (Candidate(id, 1.0, ()),) if id else ()) for _, id in said]
    drawn = xml.fromstring(picture(evaluate(matches, [gold for gold, _ in said]), {"a": "A & B"}))
    boxes = drawn.findall(".//{*}rect")
    tips = {box.find("{*}title").text: float(box.get("fill-opacity")) for box in boxes}
    assert len(tips) == len(boxes) == 4
    assert tips["A & B taken for b: 2"] == 1.0
    assert (
        tips["b taken for <c>: 1"] == tips["no entry taken for A & B: 1"] == tips["A & B taken for no entry: 1"] < 0.7
    )
