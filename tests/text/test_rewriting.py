"""Methods of text beyond their recordings: what may take long, and what is independent of the order of the work."""

import itertools
import time

import numpy as np
import pytest

import normkit as nk
from normkit.text.candidates.alias_normalization import ratio
from sizes import calls


def test_a_cell_full_of_notes_takes_no_time():
    cell = nk.create("table-normalization").cell
    start = time.perf_counter()
    assert cell("x" + "[1]" * 300 + "y").endswith("[1]y")
    assert time.perf_counter() - start < 5


def test_a_time_of_day_has_minutes_up_to_59():
    numerals = nk.create("lithuanian-numerals")
    assert numerals.time(23, 59, False) == "dvidešimt trys penkiasdešimt devynios"
    with pytest.raises(ValueError, match="minute must be at most 59"):
        numerals.time(23, 60, False)
    with pytest.raises(ValueError, match="LithuanianNumerals: gender must be one of"):
        numerals.number("5", "genitive", "neuter")


def longest(a, b):
    """The longest common subsequence by its definition."""
    return max(n for n in range(len(a) + 1) for c in itertools.combinations(a, n) if within(c, iter(b)))


def within(letters, text):
    return all(letter in text for letter in letters)


@pytest.mark.parametrize("a, b", [("abcde", "badce"), ("aab", "abab"), ("", "a"), ("xyz", "abc"), ("aaaa", "aa")])
def test_the_likeness_of_two_names_is_that_of_their_longest_common_subsequence(a, b):
    assert ratio(a, b) == ratio(b, a) == 2 * longest(a, b) / (len(a) + len(b))


def test_few_names_taken_are_the_first_of_many():
    names = {f"{i}": ["".join(np.random.default_rng(i).choice(list("abcd"), 6))] for i in range(60)}
    every = nk.create("ngram-candidates", k=60, min_df=1)(names, ["abcabc", "ddaabb"])
    few = nk.create("ngram-candidates", k=3, min_df=1)(names, ["abcabc", "ddaabb"])
    assert [[score for _, score in own] for own in few] == [[score for _, score in own[:3]] for own in every]


def test_nothing_to_find_or_to_ask_gives_nothing():
    ngrams = nk.create("ngram-candidates")
    assert ngrams({}, ["a"]) == ngrams({"x": ["few"]}, ["few"]) == [[]]
    assert ngrams({"x": ["few"]}, []) == []


def names(count):
    """A story with so many mentions, (text, mentions): full names, surnames and initials."""
    text, mentions = "", []
    for at in range(count):
        name = (f"Ann W{at // 3}", f"W{at // 3}", "A.W.")[at % 3]
        mentions.append((len(text), len(text) + len(name), "PER"))
        text += f"{name} and "
    return text, mentions


def test_twice_the_mentions_take_twice_the_work():
    method = nk.create("coreference-normalization")
    assert calls(method, *names(600)) < 2.2 * calls(method, *names(300))
    assert method(*names(6))["canonical"] == ["Ann W0", "Ann W0", "Ann W0", "Ann W1", "Ann W1", "Ann W0"]


def test_a_mention_without_words_is_a_part_of_none():
    method = nk.create("coreference-normalization")
    made = method("Bank of Japan, Bank", [(0, 13, "ORG"), (13, 14, "ORG"), (15, 19, "ORG")])
    assert made["canonical"] == ["Bank of Japan", ",", "Bank of Japan"]


@pytest.mark.parametrize("strategy", ["max_gap", "min_gap"])
def test_the_subset_of_the_largest_or_smallest_gap_is_that_of_its_ends(strategy):
    method = nk.create("calibration-set")
    scores = [0.3, 0.1, 0.9, 0.2, 0.7, 0.1, 0.9, 0.75]
    items = [{"id": at, "score": score, "beam": at} for at, score in enumerate(scores)]
    ordered = sorted(items, key=lambda item: -item["score"])
    subsets = itertools.combinations(range(8), 3)
    gap = {places: ordered[places[0]]["score"] - ordered[places[-1]]["score"] for places in subsets}
    places = (max if strategy == "max_gap" else min)(gap, key=gap.__getitem__)
    assert method.rank_set(items, strategy, 3) == [ordered[place]["id"] for place in places]
    many = [{"id": at, "score": at % 7 / at, "beam": at} for at in range(1, 21)]
    assert calls(method.rank_set, many, strategy, 5) < 5000  # of 15504 subsets
