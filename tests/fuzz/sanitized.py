"""The kernels under gcc's address and undefined-behaviour sanitizers, and the fuzz on them.

One instruction set is compiled, the widest of this machine or the one that is asked for, at -O1: at -O3 it would take
minutes. The library is loaded by NORMKIT_LIBRARY, the sanitizer's own before everything else in the process.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from normkit import kernels

ROOT = Path(__file__).parents[2]
FLAGS = ["-O1", "-g1", "-fPIC", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fopenmp"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def run(options) -> int:
    """Compile, then run the fuzz in a process of its own; its status, which a report makes 1 or more."""
    isa = options.isa or kernels.status().isa
    if isa is None:
        print(f"nothing to sanitize: {kernels.status().reason}")
        return 1
    with tempfile.TemporaryDirectory() as room:
        library, start = Path(room, "libnormkit.so"), time.monotonic()
        build(library, isa)
        print(f"{isa} compiled under the sanitizers in {time.monotonic() - start:.0f} s", flush=True)
        asked = ["--minutes", str(options.minutes), "--cases", str(options.cases), "--seed", str(options.seed)]
        asked += ["--start", str(options.start), *(["--op", options.op] if options.op else [])]
        call = [sys.executable, "-m", "tests.fuzz", *asked]
        return subprocess.run(call, cwd=ROOT, env=os.environ | surroundings(library)).returncode


def build(library: Path, isa: str) -> None:
    """Compile one instruction set as the only one that the library has."""
    source, setup = ROOT / "src/normkit/kernels/cpu", runpy.run_path(str(ROOT / "setup.py"))
    ours = [flag for flag in setup["SETS"][isa] if not flag.startswith("-O")]
    files = [source / name for name in ("kernels.c", "dispatch.c", setup["PYTHON"]) if name]
    call = [*compiler(), *FLAGS, *SANITIZERS, "-DISA=baseline", *ours, f"-I{setup['HEADERS']}", *files]
    subprocess.run([*call, "-shared", "-lm", "-o", library], check=True)


def compiler() -> list[str]:
    """Return the compiler that `setup.py` takes."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()


def surroundings(library: Path) -> dict[str, str]:
    """What a process with a sanitized library needs around it. Python itself leaks, so leaks are not looked for."""
    found = subprocess.run([*compiler(), "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    return {
        "NORMKIT_LIBRARY": str(library),
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "NORMKIT_KERNELS": "on",
    }
