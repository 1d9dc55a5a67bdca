"""However runs are spread, the numbers stay."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from helpers import TINY, all_numbers, losses, run, settings

import forked
from normkit.lab import logs
from normkit.lab.files import Folder, Unwritable
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.variants import Variant
from normkit.lab.training import engines, runs

SMALL = ["--model", TINY, "--length", "16", "--batch", "4", "--steps", "10", "--seeds", "1", "--lr", "0.01"]
LEAVE = Path(__file__).with_name("leave.py")
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


def by_torchrun(*words):
    """Run the command in two processes, which fail where a thread of torch.distributed outlives it."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(LEAVE)]
    return subprocess.run([*start, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=200)


def test_processes_that_are_stopped_leave_nothing_of_torch_distributed():
    done = by_torchrun()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("sharded", [[], ["--sharded"]], ids=["DDP", "FSDP2"])
def test_torchrun_gives_the_losses_of_one_process(sharded, tmp_path):
    norms = "rmsnorm", "batchnorm:sync=True"
    words = ["compare", *SMALL, "--allow-leak", "--norm", *norms, "--threads", "1"]
    done = by_torchrun(*words, "--out", str(tmp_path / "two"), *sharded)
    assert done.returncode == 0, done.stderr
    two = plan_settings(tmp_path / "two")
    plan = Plan(two, tuple(Variant(norm, norm=norm) for norm in norms), "rmsnorm")
    folder = Folder(tmp_path / "one")
    folder.create()
    runs.conduct(plan, folder, engines.Here(two, str(folder.root)), {}, lambda run, result: None)
    found, wanted = (all_numbers(tmp_path / name) for name in ("two", "one"))
    assert len(found) == len(norms)
    assert found.keys() == wanted.keys()
    for name in found:
        for kind in ("step", "eval"):
            torch.testing.assert_close(losses(found[name], kind), losses(wanted[name], kind), rtol=1e-4, atol=0)


def plan_settings(root):
    from normkit.lab.plan.plan import Settings

    there = json.loads((root / "plan.json").read_text())["settings"]
    return Settings(**{**there, "lrs": tuple(there["lrs"]), "sharded": False})


ONE = (Variant("rmsnorm", norm="rmsnorm"),)


def test_a_run_whose_process_is_killed_goes_on_from_its_checkpoint(tmp_path):
    given = {"lrs": (0.01,), "seeds": 1, "steps": 150, "checkpoint_seconds": 0.0}
    plan = Plan(settings(workers=1, **given), ONE, "rmsnorm")
    whole = runs.open_folder(plan, tmp_path / "whole", [])
    runs.conduct(plan, whole, engines.Here(plan.settings, str(whole.root)), {}, lambda run, result: None)
    folder = runs.open_folder(plan, tmp_path / "killed", [])
    (one,) = runs.ready(plan, {})
    engine, seen, began = engines.Local(plan.settings, str(folder.root)), [], []

    def kill():
        while not folder.checkpoint(one.name).exists():
            if len(seen) > 1:  # it ended before
                return
            time.sleep(0.01)
        began.append(logs.read(folder.log(one.name)).start)
        os.kill(engine.workers[0].process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    runs.conduct(plan, folder, engine, {}, lambda run, result: seen.append(result))
    killer.join()
    assert [result and result["status"] for result in seen] == [None, "interrupted", None, "done"]
    assert seen[1]["error"] == "the process was killed (SIGKILL, perhaps for want of memory)"
    assert [logs.read(folder.log(one.name)).start] == began
    assert all_numbers(folder.root) == all_numbers(whole.root)


class Scripted:
    """An engine that trains nothing: each run ends as the script says next."""

    def __init__(self, *script):
        self.script, self.active, self.started, self.closed = list(script), {}, [], False

    free = 1

    def start(self, one):
        self.started.append(one.name)
        self.active[one.name] = one

    def wait(self):
        return [(self.active.popitem()[1], self.script.pop(0))]

    def close(self):
        self.closed = True


def scripted(root, *script):
    plan = Plan(settings(lrs=(0.01,), seeds=1), ONE, "rmsnorm")
    folder, engine, seen = runs.open_folder(plan, root, []), Scripted(*script), []
    return folder, plan, engine, seen, lambda: runs.conduct(plan, folder, engine, {}, lambda run, end: seen.append(end))


def test_a_run_that_is_lost_over_and_over_has_crashed(tmp_path):
    lost = engines.crash_result("power cut")
    folder, plan, engine, seen, conduct = scripted(tmp_path, lost, lost, lost)
    name = run().name
    folder.log(name).write_text('{"event": "start", "variant": "rmsnorm", "lr": 0.01, "seed": 1}\n{"event": "st')
    results = conduct()
    assert engine.started == [name] * 3
    assert [end["status"] for end in seen if end] == ["interrupted", "interrupted", "crashed"]
    assert results[name]["error"] == "power cut, 3 times"
    assert logs.read(folder.log(name)).whole
    assert runs.read_results(folder, plan)[name]["error"] == "power cut, 3 times"
    assert runs.read_results(folder, plan, retry=True) == {}


def test_a_folder_that_cannot_be_written_stops_everything(tmp_path):
    end = {"status": "interrupted", "error": "full", "unwritable": (28, "No space left on device", "/there/x.jsonl")}
    *_, engine, _, conduct = scripted(tmp_path, end)
    with pytest.raises(Unwritable, match=r"^/there/x\.jsonl cannot be written: No space left on device$"):
        conduct()
    assert engine.closed


def test_a_worker_that_leaves_by_itself_is_reported_with_its_status(tmp_path, monkeypatch):
    worker = engines.Worker.__new__(engines.Worker)
    said = {}
    for code in (0, 7, -11):
        worker.process = type("Process", (), {"exitcode": code})
        said[code] = worker.death
    left = {code: f"the process left with status {code}" for code in (0, 7)}
    assert said == {**left, -11: "the process was killed (SIGSEGV)"}


@pytest.mark.ray
def test_ray_reports_no_usage_statistics(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from ray._common.usage import usage_lib

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    engines.Ray(settings(engine="ray"), str(tmp_path))
    assert not usage_lib.usage_stats_enabled()


@pytest.mark.parametrize("fails", [False, True])
def test_what_workers_come_from_begins_before_they_are_asked_for_and_ends_with_an_error(fails):
    code = f"""if True:
    import os, signal
    from multiprocessing import forkserver
    from normkit.lab.plan.settings import Settings
    from normkit.lab.training import engines
    try:
        with engines.ahead(Settings(workers=2, model="timm:resnet18")):
            first = forkserver._forkserver._forkserver_pid
            assert first is not None
            1 / (1 - {fails})
    except ZeroDivisionError:
        pass
    print(forkserver._forkserver._forkserver_pid == first, "NORMKIT_AHEAD" in os.environ)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.stdout.split() == [str(not fails), "False"], done.stderr


def test_workers_come_from_a_process_that_has_imported_and_looks_for_no_garbage_among_it():
    code = """if True:
    import gc, sys
    before = gc.get_freeze_count()
    from normkit.lab.training import ahead
    print(gc.isenabled(), gc.get_freeze_count() - before > 10_000, sys.modules.keys() >= {*ahead.MODULES})
    """
    done = forked.run("-c", code)
    assert done.stdout.split() == ["True"] * 3, done.stderr
