"""Tell which versions are installed, which kernels run, and why the others do not."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path

import torch

import normkit
from normkit import kernels
from normkit.kernels import cuda, special
from normkit.ops import eager
from normkit.ops import node as built

KERNELS = Path(kernels.__file__).parent
FUZZED = KERNELS / "fuzzed.json"  # what `python -m tests.fuzz --record` wrote down, by instruction set and processor


def examine() -> dict[str, str | int]:
    """Return label and finding, in the order that they are printed."""
    return {**machine(), **cpu_kernels(), **gpu_kernels(), **fuzz_calls(), "compiler for torch.compile": compiler()}


def machine() -> dict[str, str | int]:
    """Return the versions and the processor: what a measurement must carry with it."""
    return {
        "normkit": normkit.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": importlib.metadata.version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "vector width of torch": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def processor() -> str:
    """Return the processor's name as the system gives it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def build() -> str | None:
    """Build autograd's node for this torch; return why it cannot be, or None."""
    return eager.build_node()


def cpu_kernels() -> dict[str, str]:
    """Return what the C kernels say of themselves."""
    status = kernels.status()
    if not status.live:
        return {"C kernels": f"off: {status.reason}", "C library": status.path}
    pool = status.pool or "none: the kernels run on one thread"
    eager.refusal(torch.ones(1))  # the first look loads the library
    way = "a long way: built without Python's header, or torch is too old" if eager.short_row is None else "a short way"
    if eager.node is not None:
        way = "a short way, gradients too"
    elif built.obstacle() is None:
        way += "; for gradients too, build one: normkit doctor --build"
    return {
        "C kernels": f"on, {status.isa}",
        "C kernels of matrices, splines": "on" if special.absent() is None else f"off: {special.absent()}",
        "C library": status.path,
        "thread pool": pool,
        "small calls": way,
    }


def gpu_kernels() -> dict[str, str]:
    """Return whether the Triton kernels run, on each GPU that is here, or why not."""
    reason = cuda.absent()
    if reason is not None:
        instead = "" if cuda.off() else "; on a GPU torch's own runs where it computes the same, else the formula"
        return {"Triton kernels": f"off: {reason}{instead}"}
    known = f"Triton {importlib.metadata.version('triton')}"
    if not torch.cuda.is_available():
        return {"Triton kernels": f"{known}; there is no GPU: interpreted where it is asked for"}
    return {
        f"Triton kernels, {torch.cuda.get_device_name(i)}": f"off: {against}"
        if (against := cuda.against(i))
        else f"on, {known}"
        for i in range(torch.cuda.device_count())
    }


def fuzz_calls() -> dict[str, str]:
    """Return, for each instruction set, on how many random calls the kernels were held to float64, and where."""
    known = json.loads(FUZZED.read_text(encoding="utf-8")) if FUZZED.exists() else {}
    return {f"fuzzed, {name}": "; ".join(_describe_runs(known.get(name, {}))) or "never" for name in kernels.SETS}


def _describe_runs(places: dict[str, dict]) -> list[str]:
    now = sources()
    return [
        f"{run['cases']:,} cases on {place}, {run['date']}" + ("" if run["sources"] == now else ", of other sources")
        for place, run in places.items()
    ]


def sources() -> str:
    """Return a mark of the kernels' source code, which changes with it."""
    files = sorted(path for path in (KERNELS / "cpu").iterdir() if path.suffix in (".c", ".h"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def compiler() -> str:
    """Return the compiler that torch.compile would call, or why there is none."""
    from torch._inductor import cpp_builder, exc

    try:
        return cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return "none found: torch.compile does not work here"
