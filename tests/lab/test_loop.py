"""One run: the numbers of a loop written by hand, resumed to the last digit, and its failures told."""

import errno
import itertools
import math
import sys

import pytest
import torch
from accelerate import Accelerator
from helpers import losses, numbers, run, settings, trained

from normkit.lab import files
from normkit.lab.plan import models, tasks
from normkit.lab.plan.plan import Run
from normkit.lab.plan.variants import Variant
from normkit.lab.training import checkpoints, loop


def by_hand(one, given):
    """What the lab does, in the fewest lines."""
    torch.set_num_threads(given.threads)
    task = tasks.load(given)
    model = task.build(one.variant, one.seed)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}])
    warmup = int(one.steps * given.warmup)
    found = []
    for step in range(one.steps):
        cosine = 0.5 * (1 + math.cos((step / one.steps - given.warmup) / (1 - given.warmup) * math.pi))
        rate = one.lr * (step + 1) / (one.steps * given.warmup) if step < warmup else one.lr * (0.1 + 0.9 * cosine)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = task.loss(model, task.data.train(one.seed, step + 1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), given.clip)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_losses_are_those_of_a_loop_written_by_hand(tmp_path):
    one = run(steps=20)
    events = trained(tmp_path, one, steps=20, log_every=1, probe_every=1000, warmup=0.2)
    wanted = by_hand(one, settings(steps=20, log_every=1, probe_every=1000, warmup=0.2))
    torch.testing.assert_close(losses(events), wanted, rtol=1e-5, atol=0)


def test_the_log_tells_everything(tmp_path):
    events = trained(tmp_path, run())
    assert [e["event"] for e in events][:2] == ["start", "eval"]
    assert [e["step"] for e in events if e["event"] == "step"] == [2, 4, 6, 8, 10, 12]
    assert [e["step"] for e in events if e["event"] == "eval"] == [0, 4, 8, 12]
    probes = [e for e in events if e["event"] == "probe"]
    assert [p["step"] for p in probes] == [1, 3, 6, 9, 12]
    assert [layer["name"] for layer in probes[0]["layers"]] == ["layers.0", "layers.1"]
    assert events[0]["parameters"] == sum(
        p.numel() for p in tasks.load(settings()).build(run().variant, 1).parameters()
    )
    assert events[-1]["status"] == "done"
    assert events[-1]["final_loss"] == losses(events, "eval")[-1] < losses(events, "eval")[0]
    assert not list((tmp_path / "checkpoints").glob("*.pt"))


@pytest.mark.parametrize("steps", [1, 5, 6])
def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tmp_path, steps):
    whole = trained(tmp_path / "whole", run())
    asked = itertools.count(1)
    broken = trained(tmp_path / "broken", run(), stop=lambda: next(asked) == steps)
    assert broken[-1]["status"] == "interrupted"
    with (tmp_path / "broken" / "runs" / f"{run().name}.jsonl").open("a") as log:
        log.write('{"event": "step", "step": 11, "loss": 7}\n{"event": "ev')  # as after a kill beyond the checkpoint
    assert sorted(map(str, trained(tmp_path / "broken", run()))) == sorted(map(str, whole))


def test_without_a_checkpoint_a_run_begins_again(tmp_path):
    whole = trained(tmp_path, run())
    log = files.Folder(tmp_path).log(run().name)
    log.write_text("".join(log.read_text().splitlines(True)[:3]))
    assert trained(tmp_path, run()) == whole


def test_dropout_goes_on_where_it_was(tmp_path, monkeypatch):
    class Dropping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = torch.nn.Embedding(256, 8), torch.nn.LayerNorm(8)
            self.drop, self.output = torch.nn.Dropout(0.5), torch.nn.Linear(8, 256)

        def forward(self, x):
            return self.output(self.drop(self.norm(self.embedding(x))))

    monkeypatch.setitem(sys.modules, "dropping", type(sys)("dropping"))
    sys.modules["dropping"].make = Dropping
    given = {"model": "dropping:make", "data": "python-docs"}
    whole = trained(tmp_path / "whole", run(), **given)
    asked = itertools.count(1)
    trained(tmp_path / "broken", run(), stop=lambda: next(asked) == 6, **given)
    assert losses(trained(tmp_path / "broken", run(), **given)) == losses(whole)


def test_divergence_ends_a_run(tmp_path):
    end = trained(tmp_path, run(norm="dyt", optimizer="sgd", lr=1e8), clip=0.0)[-1]
    assert (end["status"], end["event"]) == ("diverged", "end")


@pytest.fixture
def scaled_from(monkeypatch):
    """Return a function that lets runs train in float16 on a CPU, from a loss scale of 2 to a power."""

    kept = loop.make_accelerator(settings())
    monkeypatch.setitem(kept.state._shared_state, "_mixed_precision", "no")

    def scale(power):
        def make(given):
            kept.state._shared_state["_mixed_precision"] = "no"  # Accelerate itself refuses float16 on a CPU
            made = Accelerator(cpu=True)
            made.state._shared_state["_mixed_precision"] = "fp16"
            made.scaler, made.native_amp = torch.amp.GradScaler("cpu", init_scale=2.0**power), True
            return made

        monkeypatch.setattr(loop, "make_accelerator", make)

    return scale


def test_a_step_that_the_loss_scale_leaves_out_is_no_divergence(tmp_path, scaled_from):
    scaled_from(24)
    events = trained(tmp_path, run(), precision="fp16", log_every=1, probe_every=6)
    steps = [e for e in events if e["event"] == "step"]
    skipped = {e["step"] for e in steps if e["gradient_norm"] is None}
    assert skipped & {1, 12} == {1}
    assert events[-1]["status"] == "done"
    assert events[-1]["final_loss"] < losses(events, "eval")[0]
    probes = {e["step"]: [layer["gradient"] for layer in e["layers"]] for e in events if e["event"] == "probe"}
    assert probes[1] == [None, None]
    assert all(0 < length <= steps[-1]["gradient_norm"] for length in probes[12])
    [judged] = [e for e in events if e["event"] == "found"]
    assert "not-a-number" not in {finding["rule"] for finding in judged["findings"]}


@pytest.mark.parametrize("power, steps, last", [(40, 12, 12), (120, 60, 40)])
def test_a_run_of_steps_all_left_out_has_diverged(tmp_path, scaled_from, power, steps, last):
    scaled_from(power)
    end = trained(tmp_path, run(steps=steps), precision="fp16", steps=steps)[-1]
    assert (end["status"], end["steps"]) == ("diverged", last)
    assert f"left out the last {last} steps" in files.Folder(tmp_path).log(run().name).read_text()


def test_a_loss_scale_goes_on_where_it_was(tmp_path, scaled_from):
    scaled_from(24)
    whole = trained(tmp_path / "whole", run(), precision="fp16")
    for name in ("broken", "of before"):
        asked = itertools.count(1)
        trained(tmp_path / name, run(), stop=lambda asked=asked: next(asked) == 11, precision="fp16")
    assert trained(tmp_path / "broken", run(), precision="fp16") == whole
    path = files.Folder(tmp_path / "of before").checkpoint(run().name)
    state = checkpoints.load(path)
    del state["progress"]["scaler"], state["progress"]["left_out"]
    checkpoints.save(path, state)
    assert trained(tmp_path / "of before", run(), precision="fp16")[-1]["status"] == "done"


def test_a_crash_is_reported(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(loop.Training, "_train_step", broken)
    end = trained(tmp_path, run())[-1]
    assert (end["status"], end["error"]) == ("crashed", "RuntimeError: no such thing")
    assert "in broken" in end["traceback"]


def test_a_full_disk_is_no_crash_of_the_variant(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    asked = itertools.count(1)
    monkeypatch.setattr(torch, "save", full)
    files.Folder(tmp_path).create()
    end = loop.train(run(), settings(), str(tmp_path), lambda: next(asked) == 6)
    assert (end["status"], end["unwritable"][0]) == ("interrupted", errno.ENOSPC)
    assert end["error"] == f"{files.Folder(tmp_path).checkpoint(run().name)} cannot be written: No space left on device"
    assert not list((tmp_path / "checkpoints").glob("*.p*"))
    monkeypatch.undo()
    assert trained(tmp_path, run())[-1]["status"] == "done"


def test_seconds_end_a_run(tmp_path):
    one = Run(Variant("a"), 0.01, 1, "final", None, 0.2)
    files.Folder(tmp_path).create()
    end = loop.train(one, settings(steps=None, seconds=0.2, eval_every=10**6), str(tmp_path))
    assert end["status"] == "done"
    assert 0.2 <= end["seconds"] < 2
    measured = [event for event in numbers(files.Folder(tmp_path).log(one.name)) if event["event"] == "eval"]
    assert [event["step"] for event in measured] == [0, end["steps"]]


@pytest.mark.parametrize("norm", ["layernorm", "dyt", "srmsnorm"])
def test_variants_start_with_the_same_weights_and_see_the_same_batches(norm):
    task = tasks.load(settings())
    one, two = (dict(task.build(Variant(n, norm=n), 3).named_parameters()) for n in ("rmsnorm", norm))
    shared = [name for name, p in one.items() if name in two and "norm" not in name]
    assert len(shared) == 14
    assert all(torch.equal(one[name], two[name]) for name in shared)
    other = dict(task.build(Variant(norm, norm=norm), 4).named_parameters())
    assert not torch.equal(other["head.weight"], two["head.weight"])
    assert torch.equal(task.data.train(3, 7), task.data.train(3, 7))
    assert not torch.equal(task.data.train(3, 7), task.data.train(4, 7))


def test_placements_start_alike_but_for_those_with_a_start_of_their_own():
    task = tasks.load(settings())
    pre, post, deep = (task.build(Variant(p, placement=p), 3) for p in ("pre-norm", "post-norm", "deepnorm"))
    up = "layers.1.feedforward.up.weight"
    assert torch.equal(pre.get_parameter(up), post.get_parameter(up))
    assert not torch.equal(pre.get_parameter(up), deep.get_parameter(up))
    assert torch.equal(pre.head.weight, deep.head.weight)


def test_ngpt_stays_on_the_sphere(tmp_path):
    model = tasks.load(settings()).build(Variant("ngpt", placement="ngpt"), 1)
    assert models.spheres(model) == [model]
    torch.testing.assert_close(model.get_parameter("layers.0.feedforward.up.weight").norm(dim=1), torch.ones(128))
    assert trained(tmp_path, run(norm="rmsnorm", placement="ngpt"))[-1]["status"] == "done"


def test_a_run_is_judged_by_the_watch(tmp_path):
    events = trained(tmp_path, run("dyt:alpha=40", name="ill"))
    [found] = [event for event in events if event["event"] == "found"]
    assert found["seen"].startswith("5 samples of")
    assert "saturated-squash" in [finding["rule"] for finding in found["findings"]]
    [first, *_] = [event for event in events if event["event"] == "probe"]
    assert all(layer["activation"] > 0 < layer["gradient"] for layer in first["layers"])
    assert [layer["depth"] for layer in first["layers"]] == [0, 1]
