"""Speed, and nothing but speed: every kernel here may be deleted and only time changes.

`cpu` holds the C kernels. They are loaded at their first use, never at import, and their absence is a sentence:

>>> from normkit import kernels
>>> isinstance(kernels.status().live, bool)
True
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from normkit import switches

__all__ = ["RECORDS", "SETS", "Gate", "Status", "Unsolved", "cpu", "status"]

SETS = ("baseline", "avx2", "avx512")  # instruction sets that the kernels are built for; a processor has some of them

# Another build of the library can be named, such as one under a compiler's sanitizers.
LIBRARY = Path(os.environ.get("NORMKIT_LIBRARY") or Path(__file__).with_name("cpu") / "libnormkit.so")
NODE_KINDS = "row", "point"  # as `node.cpp` has them
# by what `NORMKIT_KERNELS` says
SETTINGS = {**dict.fromkeys(switches.ON, "on"), **dict.fromkeys(switches.OFF, "off"), "interpret": "interpret"}


@dataclass(frozen=True)
class Status:
    """What `normkit doctor` tells of the CPU kernels."""

    live: bool
    reason: str | None  # why they are not live
    isa: str | None  # the instruction set in use: avx512, avx2 or baseline
    path: str
    pool: str | None  # the thread pool's library, torch's own


# Plans and records of `kernels/cpu/normkit.h`. A record is a plan, a number of rows or a turning, and arrays, each an
# address and its bytes. An array with a star is walked along its strides: its bytes are all that can be reached.
ROW, TURNING = struct.Struct("8i2q4d"), struct.Struct("17q")
POINT, CHANNEL = struct.Struct("7i2qd"), struct.Struct("8i3q2d")
RECORDS = {
    "row_forward": (ROW, "q", "x residual weight bias total y stats"),
    "row_backward": (ROW, "q", "x grad grad_total weight stats dx dweight dbias"),
    "rotate_forward": (ROW, f"{TURNING.size}s", "x* weight bias cos* sin* y* stats"),
    "rotate_backward": (ROW, f"{TURNING.size}s", "x* grad* weight cos* sin* stats dx* dweight dbias"),
    "point_forward": (POINT, "q", "x alpha shift weight bias y"),
    "point_backward": (POINT, "q", "x grad alpha shift weight dx dalpha dshift dweight dbias"),
    "channel_forward": (CHANNEL, "q", "x weight bias extra moments state y"),
    "channel_backward": (CHANNEL, "q", "x grad weight bias extra moments state dx dweight dbias dextra deps"),
}
_NO_MEMORY, _UNSOLVED, _ARRAY = 1, 6, 16
_WRONG = {2: "an element type", 3: "the rule", 4: "a size", 5: "the number of groups"}


class Unsolved(ArithmeticError):
    """A kernel found no answer for these numbers; what it wrote does not count."""


class Gate:
    """A loaded C library: one Python callable a kernel, taking plan, rows and the tensors of its record.

    The record is packed for the call and gone after it; the tensors are held until then. C checks it before anything
    else, and what it refuses is a ValueError.
    """

    def __init__(self, path: Path, records: dict, sizes: str):
        self._handle, self._records = ctypes.CDLL(str(path)), records
        known = (ctypes.c_int64 * len(records)).in_dll(self._handle, sizes)
        if list(known) != [_packer(*record).size for record in records.values()]:
            raise OSError("they are not of this version; install normkit again")

    def _kernel(self, name: str) -> Callable[..., None]:
        function, pack = self._function(name, [ctypes.c_char_p]), _packer(*self._records[name]).pack
        names = self._records[name][2].split()
        walked = [array.endswith("*") for array in names]

        def call(plan: bytes, rows: int, *tensors):
            record: list = [plan, rows]
            for array, tensor in zip(names, tensors, strict=True):
                if tensor is None:
                    record.append(0)
                    record.append(0)
                else:
                    record.append(tensor.data_ptr())
                    record.append(bytes_of(name, array, tensor))
            answer = function(pack(*record))
            if answer:
                raise _error(name, answer, names, record)

        def walk(plan: bytes, turning: bytes, *tensors):
            record: list = [plan, turning]
            for array, tensor, far in zip(names, tensors, walked, strict=True):
                if tensor is None:
                    record += (0, 0)
                else:
                    record += (tensor.data_ptr(), _reach(tensor) if far else bytes_of(name, array, tensor))
            answer = function(pack(*record))
            if answer:
                raise _error(name, answer, names, record)

        return walk if any(walked) else call

    def _function(self, name: str, arguments: list, result=ctypes.c_int):
        function = getattr(self._handle, f"normkit_{name}")
        function.argtypes, function.restype = arguments, result
        return function


class Library(Gate):
    """The loaded kernels of norms."""

    def __init__(self, path: Path):
        super().__init__(path, RECORDS, "normkit_records")
        self.row_forward = self._kernel("row_forward")
        self.row_backward = self._kernel("row_backward")
        self.rotate_forward = self._kernel("rotate_forward")
        self.rotate_backward = self._kernel("rotate_backward")
        self.point_forward = self._kernel("point_forward")
        self.point_backward = self._kernel("point_backward")
        self.channel_forward = self._kernel("channel_forward")
        self.channel_backward = self._kernel("channel_backward")
        self.isa = self._function("isa", [], ctypes.c_char_p)
        self.threaded = self._function("threaded", [])
        self.use = self._function("use", [ctypes.c_char_p])
        self.python = _extension(path, "libnormkit")

    def node(self, path: Path, unusual: tuple[Callable, ...]) -> ModuleType | None:
        """Autograd's node in C++, for these kernels, from a file that was built for this torch and this Python.

        unusual: functions, each of which says something true where the ordinary way must be taken.
        """
        module = _extension(path, "node")
        if module is not None:
            names = [[f"{kind}_forward", f"{kind}_backward"] for kind in NODE_KINDS]
            module.prepare(
                unusual, *(tuple(number for name in pair for number in self._reached(name)) for pair in names)
            )
        return module

    def _reached(self, name: str) -> tuple[int, int]:
        """A kernel's address, and the bytes of its record."""
        address = ctypes.cast(getattr(self._handle, f"normkit_{name}"), ctypes.c_void_p).value
        assert address is not None
        return address, _packer(*self._records[name]).size


def _packer(plan: struct.Struct, rows: str, arrays: str) -> struct.Struct:
    return struct.Struct(f"{plan.size}s" + rows + "Pq" * len(arrays.split()))


def _extension(path: Path, name: str) -> ModuleType | None:
    """A library as an extension of Python; None where it is not there, or was built without."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    try:
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, loader, origin=str(path)))
    except ImportError:
        return None
    loader.exec_module(module)
    return module


def bytes_of(name: str, array: str, tensor) -> int:
    """The bytes of a contiguous tensor; an error where its storage, which may have been released, ends before them."""
    size = tensor.nbytes
    if size > _reach(tensor) and size:
        raise ValueError(
            f"{name}: {array} has {size} bytes at {tensor.storage_offset() * tensor.itemsize} of a storage that holds "
            f"{tensor.untyped_storage().nbytes()}; it was released or made smaller"
        )
    return size


def _reach(tensor) -> int:
    return tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.itemsize


def _error(name: str, answer: int, arrays: list[str], record: list) -> Exception:
    if answer == _NO_MEMORY:
        return MemoryError(f"{name}: no memory for the kernel's scratch")
    if answer == _UNSOLVED:
        return Unsolved(f"{name}: numbers that are not finite, or steps that do not end")
    what = _WRONG.get(answer)
    if what is None:
        at = answer - _ARRAY
        what = f"{arrays[at].rstrip('*')} of {record[2 * (at - len(arrays)) + 1]} bytes"
    return ValueError(f"{name}: the kernel refuses {what}: it does not fit what else it was handed")


def setting() -> str:
    """What `NORMKIT_KERNELS` sets: on, off or interpret."""
    word = switches.word_of("NORMKIT_KERNELS")
    if word not in SETTINGS:
        warnings.warn(f"NORMKIT_KERNELS is on, off or interpret, not {word!r}: the kernels stay on", stacklevel=2)
    return SETTINGS.get(word, "on")


@cache
def _load() -> tuple[Library | None, str | None]:
    if setting() == "off":
        return None, "NORMKIT_KERNELS=off is set"
    if not LIBRARY.exists():
        if os.environ.get("NORMKIT_LIBRARY"):
            return None, f"NORMKIT_LIBRARY names {LIBRARY}, which is not there"
        return None, "the C kernels were not built (no compiler when normkit was installed)"
    import torch  # noqa: F401  its OpenMP library must be in the process first, so that there is one thread pool

    try:
        return Library(LIBRARY), None
    except (OSError, AttributeError, ValueError) as error:  # ctypes: no such library, function, or number in it
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
