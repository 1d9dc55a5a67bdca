"""Logs of small runs, as they were written down: what is trained on, measured and told, and when.

`python tests/lab/test_recorded.py` writes them down again; look at what has changed.
"""

import json
import pathlib
import sys

import numpy as np
import pytest
from helpers import TINY, run, trained

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


def events(case, folder):
    own, given = CASES[case]
    (folder / "text.txt").write_text(TEXT)
    np.save(folder / "rows.npy", ROWS)
    here = {"data": str(folder / given["data"])} if "." in given["data"] else {}
    found = trained(folder / "out", run(**own), **{**given, **here})
    return [{key: value for key, value in event.items() if key not in LEFT_OUT} for event in found]


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_as_it_is_written_down(case, tmp_path):
    found, known = events(case, tmp_path), KNOWN[case]
    assert [event["event"] for event in found] == [event["event"] for event in known]
    for got, want in zip(found, known, strict=True):
        for (place, value), (known_place, known_value) in zip(flat(got), flat(want), strict=True):
            near = pytest.approx(known_value, rel=1e-3, abs=1e-4) if type(known_value) is float else known_value
            assert (place, value) == (known_place, near), got["event"]


def flat(value, place=""):
    """Every number and text of an event by its place."""
    if isinstance(value, dict | list):
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
    for case in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            found[case] = [rounded(event) for event in events(case, pathlib.Path(folder))]
    lines = [f"{json.dumps(case)}: {json.dumps(value)}" for case, value in (KNOWN | found).items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
