"""Packages that only some models need, imported where one is asked for."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch


def library(name: str) -> Any:
    """Import a package that only some models need."""
    let_torchvision_load()
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision, below timm, raises a RuntimeError for a foreign torch
        raise ValueError(f"{name} is needed for this model, but cannot be imported: {error}") from error


@functools.cache
def let_torchvision_load() -> torch.library.Library | None:
    """Declare what a torchvision built for another torch looks up, without which timm and transformers do not import.

    Models need none of its operators; there is no torchvision for a torch without CUDA. The declarations live as long
    as what is returned, which the cache keeps.
    """
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return None
    except RuntimeError:  # operator torchvision::nms does not exist
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared
    return None
