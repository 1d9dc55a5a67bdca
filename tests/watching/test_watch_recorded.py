"""What every rule says of trainings that are drawn by chance is what it said before: where, since when, in which words.

    python tests/watching/test_watch_recorded.py     # writes it down anew

A drawn training is a table of numbers, and so the same on every machine: each signal rises, falls or stands, is small,
large or a share, and comes with holes, for layers of every kind that rules look at.
"""

import functools
import json
import math
import random
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from normkit.watching.diagnosis import all_rules, all_signs, diagnose
from normkit.watching.history import BAD, DATA, LOSS, History
from normkit.watching.store import MEAN, Store

RECORD = Path(__file__).with_name("findings.jsonl")
DRAWS, SAMPLES, SHOWN = 120, 16, 3
BLOCKS = [f"blocks.{number}" for number in range(4)]
KINDS = {
    "linear": "Linear",
    "norm": "LayerNorm",
    "batch": "BatchNorm1d",
    "squash": "DyT",
    "act": "Sigmoid",
    "relu": "ReLU",
}
FUNCTIONS = ("DyT", "Sigmoid", "ReLU")
BY_PLACE = {
    "layer": ["mean", "rms", "largest", "channel", "token", "kurtosis", "dead", "saturated", "dead_inputs"],
    "weight": ["gradient", "weight", "update", "radial", "spectral", "stable_rank", "carried", "unseen"],
    "batch norm": ["variance_ratio", "variance_spread", "mean_shift", "count"],
    "norm": ["eps_share"],
    "attention": ["entropy", "entropy_head", "logit", "logit_head", "sink", "sink_head", "sink_key"],
    "block": ["rms", "largest", "channel", "token", "kurtosis", "dead", "input_rms", "cosine", "alike", "rank"],
    "router": ["idle", "load", "bias_spread", "softmax_twice"],
    DATA: ["data_mean", "data_deviation"],
    LOSS: ["loss", "loss_peak", "cross_entropy", "accuracy", "classes", "loss_scale", "softmax_twice", "rescaled"],
    BAD: ["bad_data", "bad_output", "bad_gradient"],
}
WHOLE = {"channel", "token", "entropy_head", "logit_head", "sink_head", "sink_key", "count", "classes"}
SHARES = {
    "dead",
    "saturated",
    "dead_inputs",
    "unseen",
    "eps_share",
    "sink",
    "cosine",
    "alike",
    "idle",
    "carried",
    "accuracy",
}
NEAR_ONE = {"variance_ratio", "mean_shift"}
SMALL = {"radial", "update", "carried", "lr", "data_mean", "bias_spread"}


def layers():
    inner = {f"{block}.{kind}": name for block in BLOCKS for kind, name in KINDS.items()}
    return {"embedding": "Embedding", **inner, "head": "Linear"}


def weights():
    return [f"{layer}.weight" for layer, name in layers().items() if name not in FUNCTIONS]


def facts(chance):
    """A model of four blocks and its optimizer."""
    attends = [f"{block}.attention" for block in BLOCKS]
    kinds = {"Linear": "layer", "Embedding": "layer", **dict.fromkeys(FUNCTIONS, "function")}
    names, number = weights(), chance.choice([0, 0, 1])
    group = {
        "optimizer": chance.choice(["AdamW", "SGD", "Muon"]),
        "lr": 10 ** chance.randint(-4, -1),
        "momentum": chance.choice([0.0, 0.9]),
        "weight_decay": chance.choice([0.0, 0.1]),
        "eps": 10.0 ** chance.choice([-10, -8, -4]),
    }
    return {
        "model": "Drawn",
        "every": 6,
        "parameters": 10_000,
        "blocks": BLOCKS,
        "single": chance.choice([[], BLOCKS]),
        "kinds": {**dict.fromkeys(BLOCKS, "block"), **{n: kinds.get(k, "norm") for n, k in layers().items()}},
        "classes": {**dict.fromkeys(BLOCKS, "TransformerLayer"), **layers()},
        "attends": attends,
        "clips": chance.choice([True, False]),
        "eps": {layer: 1e-5 for layer, kind in layers().items() if "Norm" in kind},
        "momenta": {layer: chance.choice([0.001, 0.1]) for layer, kind in layers().items() if kind == "BatchNorm1d"},
        "shapes": {name: [64, 32] if "linear" in name else [32] for name in names}
        | {"embedding.weight": [300, 32], "head.weight": [10, 32]},
        "groups": [group, {**group, "lr": 0.0}],
        "group_of": {name: number * (at % 2) for at, name in enumerate(names)},
        "orthogonalized": {
            name: kind for name, kind in zip(names, ["head", "embedding"], strict=False) if chance.random() < 0.2
        },
        "step_lengths": {name: 8.0 for name in names if "linear" in name and chance.random() < 0.5},
        "dtypes_of": dict.fromkeys(names, chance.choice(["float32", "float16"])),
        "dtypes": dict.fromkeys(layers(), chance.choice(["float32", "float16", "bfloat16"])),
        "frozen": chance.choice([[], [(name, True) for name in names[:2]], [(names[1], False)]]),
        "left_out": chance.choice([[], names[:3]]),
        "widths": dict.fromkeys([*layers(), *BLOCKS], 32),
    }


def columns():
    places = {
        "layer": layers(),
        "weight": weights(),
        "batch norm": [layer for layer, kind in layers().items() if kind == "BatchNorm1d"],
        "norm": [layer for layer, kind in layers().items() if "Norm" in kind],
        "attention": [f"{block}.attention" for block in BLOCKS],
        "block": BLOCKS,
        "router": [f"{block}.router" for block in BLOCKS],
    }
    for place, whats in BY_PLACE.items():
        yield from ((where, what) for where in places.get(place, [place]) for what in whats)
    yield from (("group 0", "lr"), ("group 1", "lr"))


def way(chance, what):
    """How a signal goes in one training: its size, its growth over blocks and time, and its noise."""
    if what in SHARES:
        size = chance.choice([chance.random(), 1 - 10 ** chance.uniform(-5, -1), 10 ** chance.uniform(-4, -1)])
        return size, 1.0, chance.choice([0.0, 0.0, -0.1]), chance.choice([0.0, 0.01])
    if what in NEAR_ONE:
        return 10 ** chance.uniform(-1, 1), chance.choice([1.0, 1.5]), 0.0, 0.02
    small = what in SMALL
    size = 10 ** (chance.uniform(-8, 0) if small else chance.choice([0, chance.uniform(-2, 2), chance.uniform(-8, 6)]))
    grows, noise = chance.choice([0.1, 0.5, 1.0, 1.1, 2.0, 12.0]), chance.choice([0.0, 0.02, 0.5])
    return size, grows, chance.choice([0.0, 0.0, 0.05, -0.2, 0.4]), noise


def series(chance, where, what, size, grows, slope, noise):
    """One signal at one place."""
    block = int(where.split(".")[1]) if where.startswith("blocks") else 0
    start = size * grows**block * math.exp(noise * chance.gauss(0, 1))
    hole = chance.randrange(100 * SAMPLES)  # mostly beyond the end
    for at in range(SAMPLES):
        value = start * math.exp(max(min(slope * at, 12), -12) + (noise and noise * chance.gauss(0, 0.3)))
        if what in WHOLE:
            yield float(int(value) % (40 if what == "count" else 8) + 2)
        elif what == "softmax_twice":
            yield float(value > 1)
        elif what.startswith("bad"):
            yield float(1 + 6 * int(value) if value < at else 0)
        else:
            yield math.nan if at == hole else value * (50 if noise and chance.random() < 0.03 else 1)


def training(number):
    """A history of numbers that are drawn by chance."""
    chance, names = random.Random(number), list(columns())
    ways = {what: way(chance, what) for _, what in names}
    if number % 10 == 9:  # long steps and a loss that jumps at first, and both fall
        ways |= {"update": (0.5, 1.0, -0.2, 0.0), "loss": (2.0, 1.0, -0.1, 0.0), "loss_peak": (4.0, 1.0, -0.1, 0.0)}
        ways |= {"lr": (0.01, 1.0, 0.0, 0.0)}
    if number % 10 == 7:  # a loss and a share of right answers about those of guessing
        ways |= {"cross_entropy": (chance.uniform(1, 4), 1.0, 0.0, 0.02), "accuracy": (chance.random(), 1.0, 0.0, 0.02)}
        ways |= {"classes": (float(chance.randrange(8)), 1.0, 0.0, 0.0), "update": (0.01, 1.0, 0.0, 0.02)}
    lost = {name for name in weights() if number % 10 == 8 and chance.random() < 0.2}
    ways |= {what: (0.0, 1.0, 0.0, 0.0) for what in ("gradient",) if number % 20 == 17}
    names = [(where, what) for where, what in names if where not in lost or what != "gradient"]
    table = torch.tensor([[*series(chance, where, what, *ways[what])] for where, what in names])
    store = Store(signs=all_signs() if number % 2 else ())
    for at, row in enumerate(table.T):
        store.add(1 + 6 * at, names, [MEAN] * len(names), row)
    return History(store, facts(chance))


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
NEAR = 0.05  # signals are float32, and sums of them have other bits on other processors


def alike(new, old):
    """Whether all is the same but for numbers in their last digit, or a little off."""
    if isinstance(old, dict):
        return new.keys() == old.keys() and all(alike(new[key], old[key]) for key in old)
    if isinstance(old, list):
        return len(new) == len(old) and all(map(alike, new, old))
    if not isinstance(old, str) or NUMBER.sub("", new) != NUMBER.sub("", old):
        return (isinstance(old, float) and math.isclose(new, old, rel_tol=NEAR)) or new == old
    return all(map(near, NUMBER.findall(new), NUMBER.findall(old)))


def near(new, old):
    """Whether two written numbers are within a step of the last digit, or a few hundredths, of each other."""
    digits = len(old.partition(".")[2].partition("e")[0])
    step = 10.0 ** (int(old.partition("e")[2] or 0) - digits)
    return math.isclose(float(new), float(old), rel_tol=NEAR, abs_tol=1.001 * step)


def plain(value):
    """A finding's numbers by five digits."""
    if isinstance(value, float):
        return f"{value:.5g}"
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def said(rule, histories):
    """In which trainings a rule speaks, and all that it says of the first few."""
    findings = {number: [*all_rules()[rule](history)] for number, history in histories.items()}
    speaks = {number: found for number, found in findings.items() if found}
    whole = [
        {key: plain(value) for key, value in asdict(finding).items()}
        for number in list(speaks)[:SHOWN]
        for finding in speaks[number]
    ]
    margins = {str(number): [plain(finding.margin) for finding in found] for number, found in speaks.items()}
    return {"margins": margins, "findings": whole}


def report(history):
    """A whole diagnosis, as text and as JSON has it: order, causes, certainty, and what cannot be decided."""
    diagnosis = diagnose(history)
    return [str(diagnosis).splitlines(), json.loads(json.dumps(diagnosis.to_dict()))]


def lines(trainings):
    """All that is written down."""
    for rule in sorted(all_rules()):
        yield rule, said(rule, trainings)
    for number in range(0, DRAWS, 20):
        yield f"diagnosis {number}", report(trainings[number])


def histories():
    return {number: training(number) for number in range(DRAWS)}


@pytest.fixture(scope="module")
def trainings():
    return histories()


@functools.cache
def recorded():
    return dict(map(json.loads, RECORD.read_text().splitlines()))


def test_each_rule_is_written_down_here_or_has_a_golden():
    goldens = {path.parent.name for path in (Path(__file__).parents[1] / "goldens").glob("*/*.json")}
    assert set(all_rules()) <= recorded().keys() | goldens


@pytest.mark.parametrize("rule", sorted(all_rules().keys() & recorded().keys()))
def test_a_rule_says_what_it_said(rule, trainings):
    new, old = json.loads(json.dumps(said(rule, trainings))), recorded()[rule]
    assert alike(new, old), (new, old)


@pytest.mark.parametrize("number", range(0, DRAWS, 20))
def test_a_diagnosis_is_what_it_was(number, trainings):
    new, old = report(trainings[number]), recorded()[f"diagnosis {number}"]
    assert alike(new, old), (new, old)


if __name__ == "__main__":
    RECORD.write_text("".join(f"{json.dumps(line)}\n" for line in lines(histories())))
