"""Autograd's node in C++, built once for the torch that is installed, into the user's cache folder.

torch has no stable interface for such nodes, so no wheel can bring one, and a build that pip isolates sees no torch. A
command that its user types builds it: ``normkit bench``, or ``normkit doctor --build``. Nothing else does.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

from normkit import files, kernels, switches

SOURCES = tuple(Path(kernels.__file__).parent / name for name in ("node.cpp", "cpu/normkit.h"))


def path() -> Path | None:
    """The node's file, named by all that it depends on; None where no cache is wanted or there is no home for it."""
    if named := os.environ.get("NORMKIT_NODE"):
        return Path(named)
    if switches.is_off("NORMKIT_CACHE"):
        return None
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    try:
        folder = files.cache_folder()
    except OSError:
        return None
    return folder / "node" / f"node-{torch.__version__}-{_sources()}{suffix}"


@functools.cache
def _sources() -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]


def usable() -> Path | None:
    """The file, if it is there, whole, and nobody but its owner, who is the user, can have written it."""
    file = path()
    if file is None or not file.is_file() or _is_cut(file):
        return None
    for place in (file, file.parent):
        state = place.stat()
        if state.st_uid != os.getuid() or state.st_mode & 0o022:
            return None
    return file


def _is_cut(file: Path) -> bool:
    """Whether an ELF library ends before its table of sections does: to load it would end the process."""
    with file.open("rb") as opened:
        header = opened.read(64)
    if not header.startswith(b"\x7fELF\x02\x01"):
        return False  # whoever loads it says so
    if len(header) < 64:
        return True
    (start,), (size, count) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<HH", header, 58)
    return file.stat().st_size < start + size * count


def build() -> str | None:
    """Build the node if it is not there; return why it cannot be, or None."""
    if usable() is not None:
        return None
    if why := obstacle():
        return why
    file = path()
    assert file is not None
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.beside(file) as temporary:
            _compile(temporary)
            temporary.chmod(0o700)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["the compiler failed"]
        return next((line for line in lines if "error" in line), lines[0])
    except OSError as error:
        return str(error)
    return None if usable() else f"others may write to {file.parent}"


def obstacle() -> str | None:
    """Why no node can be built here, before a compiler is asked."""
    if sys.platform != "linux" or sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it is for CPython with its lock, on Linux"
    if kernels.cpu() is None:
        return f"it calls the C kernels, which are off: {kernels.status().reason}"
    if shutil.which(_compiler()[0]) is None:
        return f"there is no C++ compiler {_compiler()[0]}"
    if path() is None:
        off = switches.is_off("NORMKIT_CACHE")
        return "NORMKIT_CACHE=off is set" if off else "the user has no home folder; XDG_CACHE_HOME can name another"
    return None


def _compiler() -> list[str]:
    return os.environ.get("CXX", "c++").split()


def _compile(target: Path) -> None:
    """Against torch's headers; torch is in the process that loads it, so that nobody looks for its libraries."""
    from torch.utils.cpp_extension import include_paths, library_paths

    flags = ["-O2", "-fPIC", "-std=c++20", "-fvisibility=hidden", "-shared", f"-I{SOURCES[0].parent}"]
    flags += [f"-isystem{folder}" for folder in (sysconfig.get_paths()["include"], *include_paths())]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    libraries = [*(f"-L{folder}" for folder in library_paths()), "-ltorch_python", "-ltorch_cpu", "-lc10"]
    call = [*_compiler(), *flags, str(SOURCES[0]), *libraries, "-o", str(target)]
    subprocess.run(call, check=True, capture_output=True, text=True)
