"""What the trainers of encoders and lexical models begin with alike."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from normkit.optional import library
from normkit.text.models import quiet

Progress = Callable[[int, int], None]
# what transformers and sentence-transformers write
FILES = re.compile(
    r"(config|config_sentence_transformers|(generation|sentence_\w+|tokenizer)_config|modules)\.json"
    r"|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json|\d_[A-Z]\w+"
    r"|(tokenizer|special_tokens_map|added_tokens|vocab)\.json|(vocab|merges)\.txt|[\w.]+\.model"
)

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
    """Return where a model is to be written: where nothing is, or another model and no file besides."""
    place = Path(output)
    if not place.exists():
        return place
    try:
        config = json.loads((place / "config.json").read_bytes())
    except (OSError, ValueError):
        config = None
    if not (isinstance(config, dict) and {"model_type", "architectures"} & config.keys()):
        raise ValueError(f"{owner}: {place} is there already and is no model; it stays as it is")
    others = sorted(path.name for path in place.iterdir() if not FILES.fullmatch(path.name))
    if others:
        raise ValueError(f"{owner}: {place} has {others[0]} beside a model; it stays as it is: name a new folder")
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
