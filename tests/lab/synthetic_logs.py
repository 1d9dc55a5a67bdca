"""Logs of training runs that never happened: loss curves with the noise that seeds and batches make."""

import json
import math

import numpy as np

from normkit.lab.plan.variants import safe

VARIANTS = ("layernorm", "rmsnorm", "dyt", "derf")


def plan(variants=VARIANTS, seeds=3, baseline=None, **settings):
    return {
        "version": 1,
        "command": ["normkit", "compare", "--norm", *variants, "--out", "my report"],
        "settings": {
            "model": "decoder", "data": "python-docs", "steps": 200, "seconds": None, "batch": 16,
            "seeds": seeds, "lrs": None, "trials": 3, "search": 0.5,
            "device": "cpu", "precision": "no", "engine": "local", **settings,
        },
        "baseline": baseline or variants[0],
        "variants": [
            {"name": name, "norm": name, "placement": "pre-norm", "attention": "softmax", "optimizer": "adamw"}
            for name in variants
        ],
        "environment": {"python": "3.11.7", "torch": "2.13.0", "normkit": "0.1.0", "cores": 2, "gpu": None},
    }  # fmt: skip


def run(
    variant,
    seed,
    *,
    lr=0.003,
    phase="final",
    steps=200,
    every=5,
    gain=0.0,
    noise=0.01,
    speed=9000.0,
    status="done",
    until=None,
    measured=lambda step, loss: {},
):
    """Return the events of a run.

    A seed moves the whole curve, for every variant alike; ``noise`` is what a variant makes of the same seed, and
    ``gain`` is how far a variant lies below the others in the end.
    """
    shared = np.random.default_rng([seed, 7])
    own = np.random.default_rng([seed, int(lr * 1e6), *variant.encode()])
    luck, fate = shared.normal(0, 0.06), own.normal(0, noise)
    batches = shared.normal(0, 0.08, steps + 1)
    tokens = 1024

    def loss(step):
        share = step / steps
        mild = 4 * math.exp(-9 * share) + 2.1 - 0.25 * share + luck * share
        blown_up = 3 * math.exp(step - 90) if status == "diverged" and step > 90 else 0.0
        return min(mild + (fate - gain) * share + 30 * math.exp(-step / 2) + blown_up, 1e4)

    def probed(step):
        layers = []
        for depth in range(6):
            gradient = math.exp(-0.2 * depth) * (2 - step / steps) * math.exp(own.normal(0, 0.1))
            activation = (
                (1 + depth * (0.5 if "dyt" in variant else 0.9)) * (1 + step / steps) * math.exp(own.normal(0, 0.05))
            )
            layers.append({"name": f"blocks.{depth}", "depth": depth, "gradient": gradient, "activation": activation})
        return layers

    events = [
        {
            "event": "start",
            "variant": variant,
            "lr": lr,
            "seed": seed,
            "phase": phase,
            "parameters": 812_000,
            "time": 0.0,
        }
    ]
    events.append({"event": "eval", "step": 0, "loss": loss(0), **measured(0, loss(0))})
    last = min(until or steps, 94 if status == "diverged" else steps)
    for step in range(1, last + 1):
        seconds = round(step * tokens / speed, 3)
        if step % every == 0 or step == last:
            logged = loss(step) + batches[step]
            gradient = (
                0.3 + 3 * math.exp(-step / 20) + (math.exp(step - 90) if status == "diverged" and step > 90 else 0)
            )
            events.append(
                {
                    "event": "step",
                    "step": step,
                    "loss": logged,
                    "seconds": seconds,
                    "tokens": step * tokens,
                    "gradient_norm": gradient,
                }
            )
        if step == 1 or step % 40 == 0:
            events.append({"event": "probe", "step": step, "layers": probed(step)})
        if step % 40 == 0 or step == last:
            events.append({"event": "eval", "step": step, "loss": loss(step), **measured(step, loss(step))})
    if status == "unfinished":
        return events
    held_out = [event["loss"] for event in events if event["event"] == "eval"]
    events.append(
        {
            "event": "end", "status": status, "final_loss": held_out[-1], "best_loss": min(held_out),
            "seconds": last * tokens / speed, "cpu_seconds": 2 * last * tokens / speed,
            "tokens_per_second": speed, "unit": "tokens", "peak_memory": 412 * 2**20,
            "error": None,
        }
    )  # fmt: skip
    return events


def write_run(folder, events, name=None):
    start = events[0]
    name = name or f"{safe(start['variant'])}--lr{start['lr']:.6g}--seed{start['seed']}"
    path = folder / "runs" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def write_plan(folder, **given):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan(**given)))


def speeds(folder, clock="CPU time", rounds=40, **ratios):
    """Write the times of steps: alternately a little more and a little less than the ratio says."""
    times = {name: [[1.0, 3.0, r * (1 + 0.01 * (-1) ** i), 3 * r] for i in range(rounds)] for name, r in ratios.items()}
    (folder / "speed.json").write_text(json.dumps({"clock": clock, "rounds": times}))


def comparison(folder, gains, seeds=3, statuses=None, run=run, **given):
    """Write a whole comparison: a search of three rates, then every seed.

    ``gains`` are by variant, ``statuses`` by variant and seed.
    """
    write_plan(folder, variants=tuple(gains), seeds=seeds, **given)
    for place, (variant, gain) in enumerate(gains.items()):
        speed = 9000 - 700 * place
        for lr in (0.001, 0.003, 0.009):
            off = 0.3 * math.log10(lr / 0.003) ** 2
            write_run(folder, run(variant, 0, lr=lr, phase="search", steps=100, gain=gain - off, speed=speed))
        for seed in range(1, seeds + 1):
            status = (statuses or {}).get((variant, seed), "done")
            write_run(folder, run(variant, seed, gain=gain, speed=speed, status=status))
    return folder
