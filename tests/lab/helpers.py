"""Small settings, and logs without what differs from run to run."""

import json

from normkit import cli
from normkit.lab import logs
from normkit.lab.files import Folder
from normkit.lab.plan.plan import Run
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.training import engines, loop, speed
from normkit.lab.training.loop import train

TINY = "decoder:dim=16,depth=2,heads=2"
WORDS = ["compare", "--model", "decoder:dim=8,depth=1,heads=1", "--length", "8", "--batch", "2", "--threads", "1"]
CLOCKS = ("time", "seconds", "cpu_seconds", "parts", "tokens_per_second", "peak_memory", "seal")


def settings(**given):
    small = {"model": TINY, "length": 16, "batch": 4, "steps": 12, "log_every": 2, "eval_every": 4, "probe_every": 3}
    return Settings(**{**small, "eval_batches": 2, **given})


def run(norm="rmsnorm", lr=0.01, seed=1, steps=12, **variant):
    return Run(Variant(variant.pop("name", norm), norm=norm, **variant), lr, seed, "final", steps)


def trained(root, one, *, stop=lambda: False, **given):
    """Train; return the events of the log, without clocks."""
    folder = Folder(root)
    folder.create()
    train(one, settings(**given), str(root), stop)
    return numbers(folder.log(one.name))


def numbers(path):
    """The events of a log without clocks, and without notes of what befell its files."""
    events = [event for event in logs.read(path).events if event["event"] != logs.NOTE]
    return [{k: v for k, v in event.items() if k not in CLOCKS} for event in events]


def all_numbers(root):
    return {path.name: numbers(path) for path in sorted(Folder(root).runs.glob("*.jsonl"))}


def losses(events, kind="step"):
    return [event["loss"] for event in events if event["event"] == kind]


def plan_of(root):
    return json.loads((root / "plan.json").read_text())


def command(root, *words):
    """Type a comparison of the smallest decoders."""
    assert cli.main([*WORDS, *words, "--out", str(root)]) == 0


def train_here(patch):
    """Let comparisons train in this process, and hardly time their steps; return the names of what is trained."""
    names, own = [], loop.train
    patch.setitem(engines.ENGINES, "local", engines.Here)
    patch.setattr(loop, "train", lambda run, *rest: (names.append(run.name), own(run, *rest))[1])
    patch.setattr(speed, "ROUNDS", 1)
    patch.setattr(speed, "FEWEST", 1)
    return names
