"""What the trainers of encoders and lexical models begin with alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from normkit.optional import library
from normkit.text.models import quiet

Progress = Callable[[int, int], None]

SMALL = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 1, "vocab_size": 384}
"""A model of bytes from nothing, as transformers configures a T5."""


def settings(folder: Path, steps: int, batch: int, lr: float, seed: int) -> dict[str, Any]:
    """Return a trainer's arguments: it says nothing, keeps nothing on the way, and warms up for a tenth."""
    return {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": batch,
        "learning_rate": lr,
        "warmup_steps": max(1, steps // 10),
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": seed,
    }


def new_model(owner: str, output: str | Path) -> Path:
    """Return where a model is to be written: where nothing is, or another model."""
    place = Path(output)
    if place.exists() and not (place / "config.json").is_file():
        raise ValueError(f"{owner}: {place} is there already and is no model; it stays as it is")
    return place


def train(trainer: Any, progress: Progress | None) -> None:
    """Train; ``progress(step, steps)`` is called after each step, and nothing is printed."""
    transformers: Any = library("transformers")
    base: Any = transformers.TrainerCallback

    class Reporting(base):
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if progress is not None:
                progress(state.global_step, state.max_steps)

    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(Reporting())
    with quiet():
        trainer.train()
