"""Rapidfuzz's own invariants of its measures, of our scores."""

import random

import pytest
from rapidfuzz import distance, fuzz

from normkit import text

ALPHABET = "ab cdeé ßΩ字😀-"
MEASURES = {
    "edits": distance.DamerauLevenshtein.normalized_similarity,
    "beginning": distance.JaroWinkler.normalized_similarity,
    "letters": lambda a, b: fuzz.ratio(a, b) / 100,
    "words": lambda a, b: fuzz.token_sort_ratio(a, b) / 100,
    "part": lambda a, b: fuzz.partial_ratio(a, b) / 100,
    "weighted": lambda a, b: fuzz.WRatio(a, b) / 100,
}


def words(count, seed=0):
    drawn = random.Random(seed)
    return ["".join(drawn.choices(ALPHABET, k=drawn.randrange(12))) for _ in range(count)]


@pytest.mark.parametrize("by", MEASURES)
def test_scores_are_rapidfuzzs(by):
    spelling, names = text.Spelling(by), words(40, 1)
    for one in words(25):
        assert spelling(one, [[name] for name in names]) == pytest.approx(
            [MEASURES[by](one, n) for n in names], abs=1e-7
        )


@pytest.mark.parametrize("by", MEASURES)
def test_a_word_is_itself_and_scores_lie_from_0_to_1(by):
    spelling = text.Spelling(by)
    for one in filter(str.strip, words(40)):
        scores = spelling(one, [[one], *([other] for other in words(10, 2))])
        assert scores[0] == pytest.approx(1)
        assert ((scores >= 0) & (scores <= 1 + 1e-9)).all()


def test_several_names_of_one_give_the_best():
    spelling, names = text.Spelling("edits"), words(30, 3)
    groups = [names[i : i + i % 4] for i in range(0, 26)]
    for one in words(10):
        want = [max((MEASURES["edits"](one, name) for name in own), default=0.0) for own in groups]
        assert spelling(one, groups) == pytest.approx(want, abs=1e-7)
