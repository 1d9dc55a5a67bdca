"""What is claimed of the cost of symbolic forests."""

import random
import time
import tracemalloc
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above, below

DOMAIN = {
    "action": {
        "on": ["turn on", "switch on", "start", "light up"],
        "off": ["turn off", "switch off", "stop", "shut down"],
        "up": ["turn up", "raise", "increase"],
        "down": ["turn down", "lower", "decrease"],
    },
    "thing": {
        "lamp": ["lamp", "light", "ceiling light"],
        "heater": ["heater", "radiator", "heating"],
        "radio": ["radio", "music", "stereo"],
    },
    "room": {"kitchen": ["kitchen"], "bedroom": ["bedroom", "sleeping room"], "hall": ["hall", "corridor", "entrance"]},
}
ENTRIES = [(name, tag, words) for tag, own in DOMAIN.items() for name, words in own.items()]
UNKNOWN = {
    "action": {"on": ["fire up"], "off": ["kill"], "up": ["boost"], "down": ["dim"]},
    "thing": {"lamp": ["bulb"], "heater": ["stove"], "radio": ["tuner"]},
    "room": {"kitchen": ["galley"], "bedroom": ["dormitory"], "hall": ["lobby"]},
}
TEMPLATES = (
    "please {} the {} in the {}",
    "could you {} the {} of the {}",
    "{} the {}, {}",
    "i want to {} the {} in {}",
)
LARGE = 50_000


def accuracy(seed, domain=None):
    """The share of 200 commands whose action, thing and room are all right."""
    generator, forest, right = random.Random(seed), nk.SymbolicForest(ENTRIES), 0
    for _ in range(200):
        meant = [(generator.choice([*own]), tag) for tag, own in DOMAIN.items()]
        words = [generator.choice((domain or DOMAIN)[tag][name]) for name, tag in meant]
        pieces = forest.digest(generator.choice(TEMPLATES).format(*words))
        right += [piece for piece in pieces if piece[1]] == meant
    return right / 200


def cost(seed, entries=None):
    """The time of a command over 10 ms, or the memory of a forest over 10 MB, whichever is more."""
    tracemalloc.start()
    forest = nk.SymbolicForest(entries or [(name, tag, [*words]) for name, tag, words in ENTRIES])
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    began = time.process_time()
    for _ in range(20):
        forest.digest("could you switch off the ceiling light of the sleeping room")
    return max((time.process_time() - began) / 20 / 10e-3, memory / 10e6)


def large(seed):
    """Of a forest of 50,000 words."""
    return cost(seed, [(f"name {place}", "thing", [f"variant {place}"]) for place in range(LARGE)])


CLAIMS = [
    Measured(
        "accuracy",
        says="On paraphrases of commands of one domain it is right in 0.9 of cases or more.",
        measure=accuracy,
        wanted=above(0.9),
        control=partial(accuracy, domain=UNKNOWN),
        against="words that are not in it",
        number="share that is right",
        draws=5,
        reach="proxy",
    ),
    Measured(
        "cost",
        says="A command takes less than 10 ms, and the forest less than 10 MB.",
        measure=cost,
        wanted=below(1.0),
        control=large,
        against="a forest of 50,000 words",
        number="the larger share of both",
        draws=3,
        reach="proxy",
    ),
]
