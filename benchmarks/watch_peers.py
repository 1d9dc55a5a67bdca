"""Which illness of ``ill_runs.py`` each other tool can show at all, beside the watch; all run in the same trainings.

python benchmarks/watch_peers.py --log peers.jsonl --out benchmarks/results/watch-peers.md

Needs ``pip install weightwatcher cockpit-for-pytorch lightning transformers accelerate``. ``--log`` holds a line a
training; a command that was broken off goes on behind the last one.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import logging
import math
import statistics
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ill_runs import ILL, Digits, Run, Texts, healthy
from normkit.optional import let_torchvision_load

FIRST, FIRST_WELL, WELL = 4000, 6000, 15  # the seeds of the first ill and of the first healthy run; healthy runs
MARGIN = 2.0  # outside is a number below half the least of healthy runs, or above twice the largest
Numbers = dict[str, float]
NOTE = """Each tool ran in the training of its own: the same model, seed, batches, loss and optimizer. A cell has the
quantities that lay outside of what {well} healthy runs gave (below half the least, above twice the largest, or not
finite); of each series the first number, the median of the last quarter and the largest are compared. By the same rule
the last row counts the healthy runs of which something lies outside what the others gave. A number that lies outside
says that something is wrong, not what, where or why; none of these tools names a cause or a remedy.

- `torch.autograd.detect_anomaly` raises where a backward function gives NaN, and names the function. It was run where
  the training met NaN or infinity.
- cockpit {cockpit-for-pytorch}: its quantities Loss, GradNorm, UpdateSize and Distance, at every step. Those of single
  examples and of curvature need BackPACK, which does not know every module of these models.
- WeightWatcher {weightwatcher}: `analyze(min_evals=10)` of the model at the end; its matrices have 10 to 96 columns.
- Lightning {lightning}: the `Trainer`'s defaults and a loss that `training_step` logs; the count of frozen parameters
  in its summary.
- `Trainer` of transformers {transformers}: `loss` and `grad_norm` logged every 10 steps in place of every 500 (a
  training has 160), clipping only where the training has it."""


def by_anomaly(run: Run) -> str:
    """Return the function that detect_anomaly named."""
    try:
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
            warnings.simplefilter("ignore")
            run.train(run.build(), run.optimizer_of(run.model))
    except RuntimeError as error:
        return str(error).splitlines()[0].split(" returned")[0].removeprefix("Function ").strip("'")
    return "-"


def by_cockpit(run: Run) -> Numbers:
    """Train within cockpit's contexts."""
    from cockpit import Cockpit, quantities
    from cockpit.utils.schedules import linear

    model = run.build()
    optimizer = run.optimizer_of(model)
    kinds = (quantities.Loss, quantities.GradNorm, quantities.UpdateSize, quantities.Distance)
    cockpit = Cockpit(list(run.parameters(model)), [kind(track_schedule=linear(1)) for kind in kinds])

    def backward(step: int, loss: torch.Tensor) -> None:
        with cockpit(step, info={"batch_size": run.size, "loss": loss, "optimizer": optimizer}):
            loss.backward()

    run.backward = backward
    run.train(model, optimizer)
    series: dict[str, list[float]] = {}
    for values in cockpit.get_output().values():
        for name, value in values.items():
            if name in ("Loss", "GradNorm", "UpdateSize", "Distance"):
                parts = value if isinstance(value, list) else [value]
                series.setdefault(name, []).append(math.sqrt(sum(float(part) ** 2 for part in parts)))
    return numbers(series)


def by_weightwatcher(run: Run) -> Numbers:
    """Train, and return what WeightWatcher reads off the weights."""
    import weightwatcher

    logging.disable(logging.CRITICAL)
    run.train(run.build(), run.optimizer_of(run.model))
    table = weightwatcher.WeightWatcher(model=run.model.float()).analyze(min_evals=10)
    read = {}
    for name in ("alpha", "norm", "stable_rank"):
        values = [float(value) for value in table[name]]
        read |= {f"{name}, least": min(values), f"{name}, largest": max(values)}
    return read


def by_lightning(run: Run) -> Numbers:
    """Train by Lightning's ``Trainer`` with its defaults."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = run.build()

        def configure_optimizers(self):
            optimizer = run.optimizer_of(self.model)
            if not run.scheduled:
                return optimizer
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        def training_step(self, batch, step):
            run.before(step, self.model, self.optimizers().optimizer)
            x, y = run.each(step, *batch)
            loss = run.loss(self.model(x), y)
            self.log("loss", loss)
            series.append(float(loss))
            return loss

    series: list[float] = []
    module = Module()
    options = {"enable_progress_bar": False, "enable_checkpointing": False, "logger": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=run.steps, gradient_clip_val=run.clip, **options)
    trainer.fit(module, Batches(run))
    frozen = sum(p.numel() for p in module.parameters() if not p.requires_grad)
    return numbers({"loss": series}) | {"frozen parameters": frozen}


def by_trainer(run: Run) -> Numbers:
    """Train by transformers' ``Trainer``."""
    import transformers

    model, optimizer = run.build(), run.optimizer_of(run.build())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.steps) if run.scheduled else None
    schedule = schedule or torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, y):
            return {"loss": run.loss(self.model(x), y)}

    class Before(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            run.before(state.global_step, model, optimizer)

    options = {"max_steps": run.steps, "logging_steps": 10, "report_to": [], "save_strategy": "no", "use_cpu": True}
    options |= {"max_grad_norm": run.clip or 1e12, "per_device_train_batch_size": 1, "disable_tqdm": True}
    trainer = transformers.Trainer(
        WithLoss(),
        transformers.TrainingArguments(remove_unused_columns=False, **options),
        data_collator=lambda rows: dict(zip("xy", run.each(rows[0][0], *rows[0][1]), strict=True)),
        train_dataset=list(enumerate(Batches(run))),
        optimizers=(optimizer, schedule),
        callbacks=[Before()],
    )
    trainer._get_train_sampler = lambda *_: None  # in order
    trainer.train()
    logged = {
        name: [float(row[name]) for row in trainer.state.log_history if name in row] for name in ("loss", "grad_norm")
    }
    return numbers(logged)


class Batches:
    """The batches of a run."""

    def __init__(self, run: Run):
        self.run = run

    def __len__(self) -> int:
        return self.run.steps

    def __iter__(self):
        data = (Texts if self.run.kind == "decoder" else Digits)(self.run.seed)
        yield from (data.batch(self.run.size) for _ in range(self.run.steps))


PEERS: Mapping[str, Callable[[Run], Numbers]] = {
    "cockpit": by_cockpit,
    "WeightWatcher": by_weightwatcher,
    "Lightning": by_lightning,
    "Trainer": by_trainer,
}


def numbers(series: Mapping[str, list[float]]) -> Numbers:
    """What of series is compared.

    >>> numbers({"loss": [2.0, 9.0, 1.0, 1.0]})
    {'loss, first': 2.0, 'loss, last': 1.0, 'loss, largest': 9.0}
    """
    read = {}
    for name, values in series.items():
        last = statistics.median(values[-max(1, len(values) // 4) :])
        largest = max(values) if all(map(math.isfinite, values)) else math.nan
        read |= {f"{name}, first": values[0], f"{name}, last": last, f"{name}, largest": largest}
    return read


def outside(read: Numbers, wells: list[Numbers]) -> list[str]:
    """The quantities of a training that lie outside what healthy runs gave.

    >>> outside({"loss, last": 5.0, "loss, first": 2.0}, [{"loss, last": 1.0, "loss, first": 2.0}])
    ['loss']
    """
    names = []
    for name, value in read.items():
        known = [well[name] for well in wells if name in well and math.isfinite(well[name])]
        if not math.isfinite(value) or (known and not min(known) / MARGIN <= value <= max(known) * MARGIN):
            names.append(name.partition(",")[0])
    return list(dict.fromkeys(names))


def planted(seed: int, plant: Callable[[Run], None]) -> Run:
    """A training that is about to begin."""
    run = Run(seed)
    plant(run)
    return run


def examine(seed: int, plant: Callable[[Run], None]) -> dict[str, Any]:
    """Train once with each tool."""
    result: dict[str, Any] = {"seed": seed, "planted": plant.__name__}
    for peer, read in PEERS.items():
        torch.set_grad_enabled(True)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result[peer] = read(planted(seed, plant))
        except Exception as error:  # a tool may fail in any way on a training that is ill
            result[peer] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:60] if str(error) else ''}"
    loss = result["Lightning"]
    met = isinstance(loss, str) or not all(map(math.isfinite, loss.values()))
    result["detect_anomaly"] = by_anomaly(planted(seed, plant)) if met else "-"
    return result


def table(results: list[dict[str, Any]]) -> list[str]:
    """A row an illness, and how many healthy runs would be called ill."""
    wells = [result for result in results if result["planted"] == healthy.__name__]
    names = ["watch", "detect_anomaly", *PEERS]
    lines = [f"| illness | {' | '.join(names)} |", f"| --- {'| --- ' * len(names)}|"]

    def cell(result: dict[str, Any], peer: str) -> str:
        if isinstance(result[peer], str):
            return f"breaks off: {result[peer]}"
        others = [well[peer] for well in wells if well is not result and not isinstance(well[peer], str)]
        return ", ".join(outside(result[peer], others)) or "-"

    for plant, rules in ILL.items():
        for result in (result for result in results if result["planted"] == plant.__name__):
            cells = [plant.__name__.replace("_", " "), " or ".join(sorted(rules)), result["detect_anomaly"]]
            lines.append(f"| {' | '.join(cells + [cell(result, peer) for peer in PEERS])} |")
    counts = [sum(cell(well, peer) != "-" for well in wells) for peer in PEERS]
    anomalies = sum(well["detect_anomaly"] != "-" for well in wells)
    shares = [f"{count} of {len(wells)}" for count in (anomalies, *counts)]
    return [*lines, f"| healthy runs |  | {' | '.join(shares)} |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    let_torchvision_load()  # Lightning and transformers import it
    torch.set_num_threads(1)
    lines = options.log.read_text().splitlines() if options.log.is_file() else []
    results = [json.loads(line) for line in lines]
    plans = [(FIRST + number, plant) for number, plant in enumerate(ILL)]
    plans += [(FIRST_WELL + number, healthy) for number in range(WELL)]
    for seed, plant in plans[len(results) :]:
        results.append(examine(seed, plant))
        with options.log.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        print(seed, plant.__name__, flush=True)
    rows = table(results)
    print("\n".join(rows))
    if options.out:
        packages = ("cockpit-for-pytorch", "weightwatcher", "lightning", "transformers")
        note = NOTE
        for name in packages:
            note = note.replace(f"{{{name}}}", importlib.metadata.version(name))
        note = note.replace("{well}", str(WELL))
        head = f"`python benchmarks/watch_peers.py`, torch {torch.__version__}; seeds {FIRST} to {FIRST + len(ILL) - 1}"
        head += f", healthy ones {FIRST_WELL} to {FIRST_WELL + WELL - 1}."
        options.out.write_text(
            "\n".join(["# What other tools show of the same trainings", "", head, "", *rows, "", note, ""])
        )


if __name__ == "__main__":
    main()
