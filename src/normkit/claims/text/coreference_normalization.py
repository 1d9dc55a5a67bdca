"""What is claimed of the written forms of one name in a story."""

import math
import random
from collections import Counter
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above

FIRST = [
    "Ada",
    "Ben",
    "Cora",
    "Dan",
    "Eva",
    "Finn",
    "Gina",
    "Hugo",
    "Ines",
    "Jan",
    "Kira",
    "Leo",
    "Mara",
    "Nils",
    "Olga",
    "Paul",
]
LAST = [
    "Adler",
    "Brandt",
    "Costa",
    "Dvorak",
    "Eriksen",
    "Fischer",
    "Gomez",
    "Horvat",
    "Ivanov",
    "Jensen",
    "Keller",
    "Lopez",
    "Meyer",
    "Novak",
]
ORGS = ("Bank of the North", "European Steel Union", "Harbour Trade Council", "National Grain Board")
SENTENCES = ("{} spoke first.", "Critics of {} disagreed.", "A report by {} was read.", "Nobody asked {} about it.")


def story(seed, short=True):
    """A text, its mentions, the full name of each, and how often each name is meant."""
    generator, text, mentions, meant = random.Random(seed), "", [], []
    people = [(f"{generator.choice(FIRST)} {generator.choice(LAST)}", "PER") for _ in range(3)]
    cast = [*people, *((name, "ORG") for name in generator.sample(ORGS, 2))]
    for place, (name, kind) in enumerate([*cast, *generator.choices(cast, weights=[8, 5, 3, 4, 2], k=25)]):
        form = name if place < len(cast) or not short else generator.choice(forms(name, kind))
        before, after = generator.choice(SENTENCES).split("{}")
        start = len(text) + len(before)
        text += f"{before}{form}{after} "
        mentions.append((start, start + len(form), kind))
        meant.append(name)
    return text, mentions, meant


def forms(name, kind):
    """How a name that is known may be written."""
    words = name.split()
    if kind == "PER":
        return [words[-1], f"Mr. {words[-1]}", f"{name}'s", f"{words[-1]}'s"]
    return ["".join(word[0] for word in words if word[0].isupper()), name]


def read(seed, normalized, short=True):
    """The names that are read off, and those that are meant."""
    text, mentions, meant = story(seed, short)
    if normalized:
        return nk.CoreferenceNormalization()(text, mentions)["canonical"], meant
    return [text[start:end] for start, end, _ in mentions], meant


def share(seed, normalized=True, stories=50):
    """The share of mentions with the right full name, over stories."""
    pairs = [zip(*read(stories * seed + place, normalized), strict=True) for place in range(stories)]
    right = [name == full for own in pairs for name, full in own]
    return sum(right) / len(right)


def ndcg(names, meant):
    """The discounted gain of names that are ranked by their count, over the best."""
    worth, ranked = Counter(meant), [name for name, _ in Counter(names).most_common()]
    gains = [worth[name] / math.log2(place + 2) for place, name in enumerate(ranked)]
    best = [count / math.log2(place + 2) for place, (_, count) in enumerate(worth.most_common())]
    return sum(gains) / sum(best)


def gain(seed, short=True, stories=50):
    """By how much the discounted gain grows, over stories."""
    seeds = range(stories * seed, stories * (seed + 1))
    return sum(ndcg(*read(own, True, short)) - ndcg(*read(own, False, short)) for own in seeds) / stories


CLAIMS = [
    Measured(
        "names",
        says="0.9 or more of the mentions in stories made of templates get their right full name.",
        measure=share,
        wanted=above(0.9),
        control=partial(share, normalized=False),
        against="mentions as they are written",
        number="share that is right",
        reach="proxy",
    ),
    Measured(
        "ndcg",
        says="Names that are ranked by their counts are ranked better.",
        measure=gain,
        wanted=above(1e-6),
        control=partial(gain, short=False),
        against="stories with full names alone",
        number="gain of nDCG",
        reach="proxy",
    ),
]
