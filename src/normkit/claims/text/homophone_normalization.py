"""What is claimed of scores behind homophone normalization."""

import random
from collections import Counter
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above

SETS = ("ሀሃኀኃሐሓ", "ሰሠ", "ሱሡ", "ሲሢ", "ሳሣ", "ስሥ", "አዓኣዐ", "ኡዑ", "እዕ", "ጸፀ", "ጽፅ")
OTHERS = "ለሉላልመሙማምረሩራርበቡባብተቱታትነኑናንከኩካክወዋውገጉጋግደዳድ"


def sentences(seed, share):
    """Predictions and references: a tenth of the words is wrong, and homophones are spelled at random."""
    generator = random.Random(seed)

    def word():
        return [
            generator.choice(SETS if generator.random() < share else OTHERS) for _ in range(generator.randint(2, 5))
        ]

    def spelled(letters):
        return "".join(generator.choice(own) for own in letters)

    lexicon = [word() for _ in range(300)]
    for _ in range(60):
        meant = generator.choices(lexicon, k=10)
        prediction = [generator.choice(lexicon) if generator.random() < 0.1 else own for own in meant]
        yield " ".join(map(spelled, prediction)), " ".join(map(spelled, meant))


def chrf(pairs):
    """The F score of characters' n-grams up to 6, in percent, with recall counted twice."""
    scores = []
    for n in range(1, 7):
        hits = predictions = meant = 0
        for pair in pairs:
            one, other = (Counter(text[i : i + n] for i in range(len(text) - n + 1))
                          for text in (text.replace(" ", "") for text in pair))  # fmt: skip
            hits, predictions, meant = hits + (one & other).total(), predictions + one.total(), meant + other.total()
        precision, recall = hits / predictions, hits / meant
        scores.append(5 * precision * recall / (4 * precision + recall) if hits else 0.0)
    return 100 * sum(scores) / len(scores)


def merged(seed):
    """As many pairs of letters made one, at random."""
    generator, letters = random.Random(seed), list(OTHERS)
    generator.shuffle(letters)
    table = str.maketrans(dict(zip(letters[:23], letters[23:], strict=False)))
    return lambda texts: [text.translate(table) for text in texts]


def gain(seed, share=0.3, rewrite=None):
    """The gain of the score where both sides are normalized."""
    pairs, rewrite = [*sentences(seed, share)], rewrite or nk.HomophoneNormalization()
    return chrf([tuple(rewrite(pair)) for pair in pairs]) - chrf(pairs)


def beyond(seed, normalized=True):
    """How much of the gain is more than that of letters that are merged at random."""
    other = gain(seed, rewrite=merged(seed))
    return (gain(seed) if normalized else gain(seed, rewrite=merged(seed + 1))) - other


CLAIMS = [
    Measured(
        "chrf",
        says="chrF gains a point or more where homophones are spelled at random.",
        measure=gain,
        wanted=above(1.0),
        control=partial(gain, share=0.0),
        against="texts without homophones",
        number="gain of chrF",
        draws=5,
    ),
    Measured(
        "not-merging",
        says="That is a point more than what merging as many letters at random gains, or more.",
        measure=beyond,
        wanted=above(1.0),
        control=partial(beyond, normalized=False),
        against="letters that are merged at random",
        number="gain of chrF beyond merging",
        draws=5,
    ),
]
