"""How a kernel is started: on the device of its tensors, or by the interpreter."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

INTERPRETED_PROCESSORS = 3  # small and odd, so that small inputs are shared by several programs


def processors(x: Tensor) -> int:
    """How many multiprocessors the GPU of a tensor has."""
    return _processors(x.device.index) if x.is_cuda else INTERPRETED_PROCESSORS


@cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class Binary(NamedTuple):
    """A kernel that is compiled and loaded on a device, as Triton's launcher takes it."""

    run: Any
    function: Any
    packed: Any
    constants: tuple  # in the order of the kernel's arguments


_binaries: dict[tuple, Binary] = {}


def launch(kernel, grid: tuple[int, ...], arguments: tuple, constants: dict, warps: int, interpreted: bool) -> None:
    """Start `kernel` with its arguments, on the current stream of their device; absent tensors are None.

    The first time of its kind by Triton's dispatch, which compiles; then by Triton's launcher alone.
    """
    if interpreted:
        from normkit.kernels.cuda.templates.interpreter import interpret

        interpret(kernel, grid, arguments, constants)
        return
    device = arguments[0].device.index
    with _beside(device):
        kind = (kernel, device, warps, *constants.values(), *map(_kind, arguments))
        binary = _binaries.get(kind)
        if binary is None or _has_hooks():
            made = kernel[grid](*arguments, **constants, num_warps=warps)
            names = kernel.arg_names[len(arguments) :]
            _binaries[kind] = Binary(
                made.run, made.function, made.packed_metadata, tuple(constants[name] for name in names)
            )
            return
        x, y, z = (*grid, 1, 1)[:3]
        stream = _triton()[0].active.get_current_stream(device)
        binary.run(x, y, z, stream, binary.function, binary.packed, None, None, None, *arguments, *binary.constants)


def _kind(argument: Tensor | float | None) -> object:
    """What Triton compiles a kernel anew for: types, whether memory is aligned, 1, what 16 divides, long numbers."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, argument.bit_length() > 31
    return type(argument)


def _has_hooks() -> bool:
    """Whether somebody, such as a profiler, asks to hear of launches, which only the dispatch tells."""
    knobs = _triton()[1]
    enter, leave = knobs.launch_enter_hook, knobs.launch_exit_hook
    return any(hook is not None and getattr(hook, "calls", True) for hook in (enter, leave))


@cache
def _triton() -> tuple[Any, Any]:
    """Triton's driver and what it can be told at run time."""
    from triton import knobs
    from triton.runtime import driver

    return driver, knobs.runtime


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
