"""Flower's modules, which are imported where they are wanted."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from typing import Any

PUBLIC = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def load(part: str) -> Any:
    """Return a module of Flower, its telemetry and Ray's off."""
    if importlib.util.find_spec("flwr") is None:
        raise ValueError("flwr is not installed: pip install flwr, where this package's tested versions are not wanted")
    for name, value in PUBLIC.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"flwr.{part}")
