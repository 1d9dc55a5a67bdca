"""What HD-RAG claims of rows and columns as texts."""

import math
import random
import re
from collections import Counter
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above

MEASURES, YEARS = (
    ["sales", "profit", "costs", "staff", "orders", "returns"],
    ["2019", "2020", "2021", "2022", "2023", "2024"],
)
REGIONS, PARTS = (
    ["alba", "boria", "cesta", "doria", "elba", "fenia"],
    ["north", "south", "east", "west", "centre", "coast"],
)
TABLES, QUESTIONS = 60, 60


def pivot(generator, nested):
    """A table with two levels of headers on both sides, or with one, and one path of rows and of columns of it."""
    tops = [(m, y) for m in generator.sample(MEASURES, 3) for y in generator.sample(YEARS, 2)]
    lefts = [(r, p) for r in generator.sample(REGIONS, 3) for p in generator.sample(PARTS, 2)]
    asked = generator.choice(lefts) + generator.choice(tops)
    value = lambda: str(generator.randrange(10, 99))  # noqa: E731
    if not nested:
        header = ["", *("".join(top) for top in tops)]
        rows = [["".join(left), *(value() for _ in tops)] for left in lefts]
        return [header, *rows], f"{asked[0]}{asked[1]} {asked[2]}{asked[3]}"
    first = ["", "", *(m if place % 2 == 0 else "" for place, (m, _) in enumerate(tops))]
    second = ["", "", *(y for _, y in tops)]
    rows = [
        [r if place % 2 == 0 else "", p, *(value() for _ in tops)] for place, (r, p) in enumerate(lefts)
    ]  # fmt: skip
    return [first, second, *rows], " ".join(asked)


def words(text):
    """The words of a text."""
    return re.findall(r"\w+", text)


def first(known, question):
    """The unit that BM25 ranks first, of units as counts of words."""
    mean = sum(own.total() for own in known) / len(known)
    rarity = {word: sum(word in own for own in known) for word in words(question)}
    scores = []
    for own in known:
        share = 1.2 * (0.25 + 0.75 * own.total() / mean)
        scores.append(
            sum(
                math.log(1 + (len(known) - n + 0.5) / (n + 0.5)) * own[word] * 2.2 / (own[word] + share)
                for word, n in rarity.items()
            )
        )
    return max(range(len(known)), key=scores.__getitem__)


def recall(tables, paths, levels):
    """The share of questions whose table comes first."""
    method, units, owners = nk.HeaderPaths(top=levels, left=levels), [], []
    for place, (table, _) in enumerate(tables):
        own = [*method.rows(table), *method.columns(table)] if paths else [" ".join(" ".join(row) for row in table)]
        units += own
        owners += [place] * len(own)
    known = [Counter(words(text)) for text in units]
    return sum(owners[first(known, tables[at][1])] == at for at in range(QUESTIONS)) / QUESTIONS


def gain(seed, nested=True):
    """The gain of the recall over flattened tables."""
    generator = random.Random(seed)
    tables = [pivot(generator, nested) for _ in range(TABLES)]
    return recall(tables, True, 1 + nested) - recall(tables, False, 1 + nested)


CLAIMS = [
    Measured(
        "recall",
        says="Texts of rows and columns find nested tables in first place 10 points more often than flattened tables.",
        measure=gain,
        wanted=above(0.1),
        control=partial(gain, nested=False),
        against="tables with one level of headers",
        number="gain of the recall",
        draws=24,
        rule="mean",
        reach="proxy",
    )
]
