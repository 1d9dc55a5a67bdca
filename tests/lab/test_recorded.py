"""What the lab makes, as it was written down: logs of small runs, plans of commands, reports of what never happened.

`python tests/lab/test_recorded.py` writes them down again; look at what has changed.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys

import numpy as np
import pytest
import synthetic_logs
from helpers import TINY, run, trained

from normkit.lab import cli, request
from normkit.lab.report import exports, figures, history, page, ranking, tables

RECORD = pathlib.Path(__file__).with_name("recorded.json")
KNOWN = json.loads(RECORD.read_text()) if RECORD.exists() else {}
LEFT_OUT = ("recipe", "held_out", "traceback")  # have paths in them, or depend on those
TEXT = " ".join(f"{i} times {i % 7} is {i * (i % 7)}; {'even' if i % 2 else 'odd'}ly so." for i in range(900))
ROWS = np.random.default_rng(0).standard_normal((200, 3)).cumsum(1).round(6)
IMAGES = {"model": "resnet:dim=4", "data": "digits", "batch": 16}
OWNERS = {"federated": True, "clients": 3, "local_steps": 2, "log_every": 1, "eval_every": 2, "probe_every": 2}
CASES = {  # what the run has of its own, and the settings
    "decoder": ({}, {"data": "text.txt"}),
    "sgd": ({"optimizer": "sgd", "lr": 0.1}, {"data": "text.txt", "clip": 0.0, "warmup": 0.5}),
    "flow": ({"norm": "original"}, {"model": "flow:depth=2,hidden=8", "data": "rows.npy", "batch": 16}),
    "matrices": ({"norm": "liebn"}, {"model": "spdnet", "data": "spd", "batch": 16, "steps": 3}),
    "vit": ({"norm": "layernorm", "placement": "post-norm"}, {**IMAGES, "model": "vit:dim=8,depth=1,heads=2"}),
    "owners": ({"norm": "batchnorm", "steps": 3}, {**IMAGES, **OWNERS}),
    "owners with looks": ({"norm": "fedbn", "steps": 3}, {**IMAGES, **OWNERS, "split": "looks:0.5"}),
    "fedld": ({"norm": "batchnorm", "aggregation": "fedld", "steps": 3}, {**IMAGES, **OWNERS, "split": "classes:2"}),
    "fedlaw": ({"norm": "batchnorm", "aggregation": "fedlaw:epochs=3", "steps": 2}, {**IMAGES, **OWNERS}),
    "owners of text": ({"steps": 3}, {"model": TINY, "data": "text.txt", **OWNERS, "split": "even"}),
}
PLANS = (
    "",
    "--federated",
    "--federated --norm batchnorm fedbn --split looks:0.5 --clients 4 --steps 7 --local-steps 2",
    "--model spdnet --data spd --steps 40",
    "--model flow --data rows.npy --flow spline-coupling jet",
    "--norm rmsnorm dyt:alpha=0.5 --placement pre-norm post-norm --twin --seeds 3",
    "--model resnet --data digits --metric accuracy --seconds 3 --lr 0.1 0.2 --batch 5",
    "--until-decided --trials 2 --margin 0.02 --clip 0 --warmup 0",
)
OF_THE_MACHINE = ("workers", "threads", "device")
GAINS = {"layernorm": 0.0, "rmsnorm": 0.0, "dyt": -0.3, "derf": 0.3}
CLIENTS = ("accuracy", "client-accuracy", "worst-client", "client-spread")


def measures(step, loss):
    return {name: (i + 1) * step / 1000 for i, name in enumerate(CLIENTS)} | {"clients": [0.1, step / 1000]}


REPORTS = {
    "whole": {"gains": GAINS, "seeds": 5},
    "two seeds": {"gains": GAINS, "seeds": 2},
    "failures": {
        "gains": {**GAINS, "post-norm": 0.0, "slow": 0.001},
        "statuses": {("post-norm", 1): "diverged", ("slow", 2): "unfinished", ("derf", 3): "crashed"},
    },
    "owners": {
        "gains": GAINS,
        "run": functools.partial(synthetic_logs.run, measured=measures),
        **{"federated": True, "clients": 2, "metric": "accuracy", "higher": True, "split": "even", "local_steps": 2},
    },
}


def planned(words, folder):
    command = argparse.ArgumentParser()
    cli.add_arguments(command)
    found = request.plan_from(command.parse_args([*words.split(), "--out", str(folder / "out")]))
    settings = {k: v for k, v in vars(found.settings).items() if k not in OF_THE_MACHINE}
    variants = [dataclasses.asdict(variant) for variant in found.variants]
    return json.loads(json.dumps({"settings": settings, "variants": variants, "baseline": found.baseline}))


def reported(case, folder):
    synthetic_logs.comparison(folder, **REPORTS[case])
    synthetic_logs.speeds(folder, layernorm=1.0, rmsnorm=0.9, dyt=1.2, derf=1.0)
    comparison = history.load(folder)
    rows = ranking.rank(comparison)
    found = page.content(comparison)
    told = {
        "table": [tables.table(rows, width) for width in (60, 200)],
        "records": exports.records(rows),
        "latex": exports.latex_text(rows),
        "content": {
            key: found[key] for key in ("title", "subtitle", "answer", "reading", "health", "notes", "settings")
        },
        "pictures": brief(figures.pictures(comparison)),
    }
    return json.loads(json.dumps(told).replace(str(folder), "FOLDER"))


def brief(value):
    """Long lists of numbers as their length, their ends and a sum."""
    if isinstance(value, dict):
        return {key: brief(inner) for key, inner in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) < 6 or not all(isinstance(one, int | float) for one in value):
        return [brief(inner) for inner in value]
    return [len(value), value[0], value[-1], float(np.cos(np.arange(len(value))) @ np.array(value, dtype=float))]


def events(case, folder):
    own, given = CASES[case]
    (folder / "text.txt").write_text(TEXT)
    np.save(folder / "rows.npy", ROWS)
    here = {"data": str(folder / given["data"])} if "." in given["data"] else {}
    found = trained(folder / "out", run(**own), **{**given, **here})
    return [{key: value for key, value in event.items() if key not in LEFT_OUT} for event in found]


MADE = {
    **{case: functools.partial(events, case) for case in CASES},
    **{f"plan of {words or 'nothing'}": functools.partial(planned, words) for words in PLANS},
    **{f"report of {case}": functools.partial(reported, case) for case in REPORTS},
}


@pytest.mark.parametrize("case", MADE)
def test_what_is_made_is_what_is_written_down(case, tmp_path):
    found, known = dict(flat(MADE[case](tmp_path))), dict(flat(KNOWN[case]))
    assert found.keys() == known.keys(), "run `python tests/lab/test_recorded.py`"
    for place, value in known.items():
        near = pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True) if type(value) is float else value
        assert found[place] == near, place


def flat(value, place=""):
    """Every number and text by its place."""
    if isinstance(value, dict | list):
        yield place, len(value)
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(inner, f"{place}/{key}")
    else:
        yield place, value


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    import tempfile

    found = {}
    for case in sys.argv[1:] or MADE:
        with tempfile.TemporaryDirectory() as folder:
            found[case] = rounded(MADE[case](pathlib.Path(folder)))
    lines = [f"{json.dumps(case)}: {json.dumps(value)}" for case, value in (KNOWN | found).items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
