"""What the trainers of encoders and lexical models begin with alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
