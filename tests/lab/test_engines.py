"""However runs are spread, the numbers stay."""

import json
import os
import subprocess
import sys

import pytest
import torch
from helpers import TINY, all_numbers, losses, settings

from normkit.lab import engines, runs
from normkit.lab.files import Folder
from normkit.lab.plan import Plan, Variant

SMALL = ["--model", TINY, "--length", "16", "--batch", "4", "--steps", "10", "--seeds", "1", "--lr", "0.01"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def conducted(engine, root, **given):
    variants = (Variant("layernorm"), Variant("dyt", norm="dyt"))
    plan = Plan(settings(engine=engine, workers=2, lrs=(0.01,), seeds=1, **given), variants, "layernorm")
    folder = runs.open_folder(plan, root, [])
    seen = []
    engine = engines.make(plan.settings, str(root))
    runs.conduct(plan, folder, engine, {}, lambda run, result: seen.append((run.name, result)))
    assert [result["status"] for _, result in seen if result] == ["done", "done"]
    return all_numbers(root)


@pytest.mark.ray
def test_ray_gives_the_numbers_of_the_local_engine(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert conducted("ray", tmp_path / "ray") == conducted("local", tmp_path / "local")


@pytest.mark.parametrize("sharded", [[], ["--sharded"]], ids=["DDP", "FSDP2"])
def test_torchrun_gives_the_losses_of_one_process(sharded, tmp_path):
    words = ["compare", *SMALL, "--norm", "rmsnorm", "--threads", "1"]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    start = [*start, "-m", "normkit.cli", *words, "--out", str(tmp_path / "two"), *sharded]
    done = subprocess.run(start, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    plan = Plan(settings(steps=10, lrs=(0.01,), seeds=1), (Variant("rmsnorm", norm="rmsnorm"),), "rmsnorm")
    two = plan_settings(tmp_path / "two")
    folder = Folder(tmp_path / "one")
    folder.create()
    engine = engines.Here(two, str(folder.root))
    runs.conduct(Plan(two, plan.variants, "rmsnorm"), folder, engine, {}, lambda run, result: None)
    (found,), (wanted,) = (all_numbers(tmp_path / name).values() for name in ("two", "one"))
    torch.testing.assert_close(losses(found), losses(wanted), rtol=1e-4, atol=0)
    torch.testing.assert_close(losses(found, "eval"), losses(wanted, "eval"), rtol=1e-4, atol=0)


def plan_settings(root):
    from normkit.lab.plan import Settings

    there = json.loads((root / "plan.json").read_text())["settings"]
    return Settings(**{**there, "lrs": tuple(there["lrs"]), "sharded": False})
