"""Verdicts of earlier processes, one file each in the user's cache folder; ``NORMKIT_CACHE=off`` leaves them out.

A file is named by all that its verdict depends on: the module's source and configuration, versions, and the library's
own files. One that is damaged, or of another owner, counts as absent; one that cannot be written is not. The first
that a process writes deletes those that were not read for :data:`DAYS`, and of more than :data:`MOST` the oldest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

from normkit import files, switches

DAYS, MOST = 90, 4096


def read(name: str) -> dict[str, Any] | None:
    """Return what was written under a name, or None."""
    if switches.is_off("NORMKIT_CACHE"):
        return None
    try:
        with open(_file(name), encoding="utf-8") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            held = json.load(file)
            with contextlib.suppress(OSError):
                os.utime(file.name)  # it is in use
        return held["verdict"] if held["seal"] == _seal(name, held["verdict"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write(name: str, verdict: dict[str, Any]) -> None:
    """Write a verdict that JSON holds as it is, for its owner alone."""
    if switches.is_off("NORMKIT_CACHE") or json.loads(json.dumps(verdict)) != verdict:
        return
    text = json.dumps({"seal": _seal(name, verdict), "verdict": verdict})
    with contextlib.suppress(OSError):
        file = _file(name)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.beside(file) as temporary:
            temporary.chmod(0o600)
            temporary.write_text(text, encoding="utf-8")
        prune(file.parent)


@functools.cache
def prune(folder: Path) -> None:
    """Delete what is old, or too much, once a process."""
    times = {path: path.stat().st_mtime for path in folder.glob("*.json")}
    newest = sorted(times, key=lambda path: times[path], reverse=True)
    for place, path in enumerate(newest):
        if place >= MOST or times[path] < time.time() - DAYS * 86400:
            path.unlink(missing_ok=True)


def _seal(name: str, verdict: dict[str, Any]) -> str:
    """A checksum of a verdict and its name."""
    return hashlib.sha256(f"{name} {json.dumps(verdict, sort_keys=True)}".encode()).hexdigest()


def _file(name: str) -> Path:
    return files.cache_folder() / "recognized" / f"{hashlib.sha256(f'{name} {_versions()}'.encode()).hexdigest()}.json"


@functools.cache
def _versions() -> str:
    """The versions of what a verdict was made with, and when the library's own files were written."""
    home = Path(files.__file__).parent
    own = sorted((str(p.relative_to(home)), p.stat().st_size, p.stat().st_mtime_ns) for p in home.rglob("*.py"))
    return repr((sys.version, platform.machine(), torch.__version__, own))
