"""The most memory that a run took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


def reset_peak() -> None:
    """Begin to count the peak of memory anew, where that can be done."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Return the most memory that training took: of the GPU, or of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    for line in _process_status():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    import psutil

    return psutil.Process().memory_info().rss


def _process_status() -> Iterator[str]:
    path = Path("/proc/self/status")
    yield from path.read_text().splitlines() if path.is_file() else ()
