"""How a kernel is started: on the device of its tensors, or by the interpreter."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

INTERPRETED_PROCESSORS = 3  # small and odd, so that small inputs are shared by several programs


def processors(x: Tensor) -> int:
    """How many multiprocessors the GPU of a tensor has."""
    return _processors(x.device.index) if x.is_cuda else INTERPRETED_PROCESSORS


@cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def launch(kernel, grid: tuple[int, ...], arguments: tuple, constants: dict, warps: int, interpreted: bool) -> None:
    """Start `kernel` with its arguments, on the current stream of their device; absent tensors are None."""
    if interpreted:
        from normkit.kernels.cuda.templates.interpreter import interpret

        interpret(kernel, grid, arguments, constants)
        return
    with _beside(arguments[0].device.index):
        kernel[grid](*arguments, **constants, num_warps=warps)


def _beside(device: int) -> AbstractContextManager:
    """What makes a GPU the current one, where it is not: Triton launches on that."""
    return nullcontext() if device == torch.cuda.current_device() else torch.cuda.device(device)


def partial(x: Tensor, programs: int, width: int, wanted: Tensor | None) -> Tensor | None:
    """Room for one sum a program, where a gradient is wanted."""
    return None if wanted is None else torch.empty(programs, width, dtype=torch.float32, device=x.device)


def add_partials(sums: Tensor | None, to: Tensor | None) -> None:
    """Adds up what the programs have found, always in the same order; `to` of one entry takes all of it."""
    if sums is not None and to is not None:
        to.copy_(sums.sum().view(to.shape) if to.numel() == 1 else sums.sum(0).view(to.shape))
