"""The kernels under gcc's address and undefined-behaviour sanitizers, and the fuzz on them.

One instruction set is compiled, the widest of this machine or the one that is asked for, at -O1: at -O3 it would take
minutes. The libraries are loaded by NORMKIT_LIBRARY and NORMKIT_SPECIAL_LIBRARY, the sanitizer's own before everything
else in the process. The kernels of matrices, splines, clients' states and codes have no fuzz: their tests run.
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
WITHOUT_FUZZ = [f"tests/ops/test_{name}.py" for name in ("spectral", "spline", "sums", "codes")]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def run(options) -> int:
    """Compile, then run the fuzz and the other tests in processes of their own; 1 where one reports something."""
    isa = options.isa or kernels.status().isa
    if isa is None:
        print(f"nothing to sanitize: {kernels.status().reason}")
        return 1
    with tempfile.TemporaryDirectory() as room:
        start, around = time.monotonic(), surroundings(build(Path(room), isa))
        print(f"{isa} compiled under the sanitizers in {time.monotonic() - start:.0f} s", flush=True)
        asked = ["--minutes", str(options.minutes), "--cases", str(options.cases), "--seed", str(options.seed)]
        asked += ["--start", str(options.start), *(["--op", options.op] if options.op else [])]
        call = [sys.executable, "-m", "tests.fuzz", *asked]
        others = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITHOUT_FUZZ]
        calls = [call] if options.op else [call, others]
        return int(any(subprocess.run(call, cwd=ROOT, env=os.environ | around).returncode for call in calls))


def build(room: Path, isa: str) -> list[Path]:
    """Compile one instruction set as the only one that the libraries have."""
    setup = runpy.run_path(str(ROOT / "setup.py"))
    ours = [flag for flag in setup["SETS"][isa] if not flag.startswith("-O")]
    start = [*compiler(), *FLAGS, *SANITIZERS, "-DISA=baseline", *ours, f"-I{setup['HEADERS']}"]
    made = []
    for source, for_every_set in setup["SOURCES"].values():
        made.append(room / f"{source.name}.so")
        further = [setup["PYTHON"]] if setup["PYTHON"] and source.name == "cpu" else []
        files = [ROOT / source / name for name in (for_every_set, "dispatch.c", *further)]
        subprocess.run([*start, *files, "-shared", "-lm", "-o", made[-1]], check=True)
    return made


def compiler() -> list[str]:
    """Return the compiler that `setup.py` takes."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()


def surroundings(libraries: list[Path]) -> dict[str, str]:
    """What a process with a sanitized library needs around it. Python itself leaks, so leaks are not looked for."""
    # The library of C++ as well, or the sanitizer does not find what throws torch's errors.
    asked = [[*compiler(), f"-print-file-name={name}"] for name in ("libasan.so", "libstdc++.so.6")]
    found = [subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip() for call in asked]
    return {
        "NORMKIT_LIBRARY": str(libraries[0]),
        "NORMKIT_SPECIAL_LIBRARY": str(libraries[1]),
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "NORMKIT_KERNELS": "on",
    }
