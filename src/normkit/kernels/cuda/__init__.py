"""Triton kernels for GPUs: the templates of `kernels/cpu` once more, taking the same plans and giving the same arrays.

Nothing is imported from Triton before a tensor on a GPU asks for it, or the interpreter, which runs the same kernels on
CPU tensors, slowly: that is how they are tested where there is no GPU. What speaks against them is a sentence:

>>> from normkit.kernels import cuda
>>> isinstance(cuda.absent(), (str, type(None)))
True
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from functools import cache
from typing import TYPE_CHECKING

from normkit.kernels import setting

if TYPE_CHECKING:
    from normkit.kernels.cuda.engine import Engine

OLDEST = (3, 4)  # Triton's version, as torch 2.8 has it
CAPABILITY = (8, 0)  # Nvidia's, since Ampere: bfloat16
SMALLEST = 2.0**-126  # of float32's normal numbers; a GPU may take what is smaller for 0


def off() -> bool:
    """Whether the kernels were turned off."""
    return setting() == "off"


@cache
def absent() -> str | None:
    """Why there are no Triton kernels at all, or None."""
    if off():
        return "NORMKIT_KERNELS=off is set"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'normkit[triton]'"
    return too_old(importlib.metadata.version("triton"))


def too_old(version: str) -> str | None:
    """Why a version of Triton is not for these kernels, or None.

    >>> too_old("3.3.1")
    'Triton 3.3.1 is too old for the GPU kernels: 3.4 is the oldest'
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    minimum = ".".join(map(str, OLDEST))
    return None if numbers >= OLDEST else f"Triton {version} is too old for the GPU kernels: {minimum} is the oldest"


@cache
def against(device: int) -> str | None:
    """What speaks against the kernels on a GPU, or None."""
    import torch

    reason = absent()
    if reason is not None or torch.version.hip:
        return reason
    have = torch.cuda.get_device_capability(device)
    if have < CAPABILITY:
        return "a GPU of compute capability {}.{} is too old for the Triton kernels: {}.{} is the oldest".format(
            *have, *CAPABILITY
        )
    return None


@cache
def library(interpreted: bool) -> Engine:
    """The kernels, compiled or interpreted; to be asked for only where nothing speaks against them."""
    from normkit.kernels.cuda.engine import Engine

    return Engine(interpreted)
