"""Speed, and nothing but speed: every kernel here may be deleted and only time changes.

`cpu` holds the C kernels. They are loaded at their first use, never at import, and their absence is a sentence:

>>> from normkit import kernels
>>> isinstance(kernels.status().live, bool)
True
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Status", "cpu", "status"]

LIBRARY = Path(__file__).with_name("cpu") / "libnormkit.so"


@dataclass(frozen=True)
class Status:
    """What `normkit doctor` tells of the CPU kernels."""

    live: bool
    reason: str | None  # why they are not live
    isa: str | None  # the instruction set in use: avx512, avx2 or baseline
    path: str
    pool: str | None  # the thread pool's library, torch's own


class Library:
    """The loaded C library: one Python callable a function, taking a plan, a number of rows and addresses."""

    def __init__(self, path: Path):
        self._handle = ctypes.CDLL(str(path))
        self.row_forward = self._kernel("row_forward", 7)
        self.row_backward = self._kernel("row_backward", 8)
        self.rotate_forward = self._kernel("rotate_forward", 8)
        self.rotate_backward = self._kernel("rotate_backward", 10)
        self.point_forward = self._kernel("point_forward", 6)
        self.point_backward = self._kernel("point_backward", 10)
        self.channel_forward = self._kernel("channel_forward", 7)
        self.channel_backward = self._kernel("channel_backward", 12)
        self.isa = self._function("isa", [], ctypes.c_char_p)
        self.threaded = self._function("threaded", [])
        self.use = self._function("use", [ctypes.c_char_p])

    def _kernel(self, name: str, addresses: int):
        return self._function(name, [ctypes.c_void_p, ctypes.c_int64] + [ctypes.c_void_p] * addresses)

    def _function(self, name: str, arguments: list, result=ctypes.c_int):
        function = getattr(self._handle, f"normkit_{name}")
        function.argtypes, function.restype = arguments, result
        return function


@cache
def _load() -> tuple[Library | None, str | None]:
    if os.environ.get("NORMKIT_KERNELS", "").lower() in ("off", "0", "no"):
        return None, "NORMKIT_KERNELS=off is set"
    if not LIBRARY.exists():
        return None, "the C kernels were not built (no compiler when normkit was installed)"
    import torch  # noqa: F401  its OpenMP library must be in the process first, so that there is one thread pool

    try:
        return Library(LIBRARY), None
    except (OSError, AttributeError) as error:
        return None, f"the C kernels could not be loaded: {error}"


def cpu() -> Library | None:
    """The C kernels, or None; `status().reason` tells why."""
    return _load()[0]


def status() -> Status:
    """Tells whether the kernels run, with which instruction set, and on whose threads."""
    library, reason = _load()
    if library is None:
        return Status(False, reason, None, str(LIBRARY), None)
    pool = ", ".join(_thread_pools()) if library.threaded() else None
    return Status(True, None, library.isa().decode(), str(LIBRARY), pool)


def _thread_pools() -> list[str]:
    """The OpenMP libraries in this process; more than one means two pools fighting for the cores."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return ["OpenMP"]
    paths = {line.split()[-1] for line in maps.read_text().splitlines() if "omp" in line.rsplit("/", 1)[-1]}
    return sorted(path for path in paths if path.rsplit("/", 1)[-1].startswith(("libgomp", "libomp", "libiomp")))
