"""How a kernel is started: on the device of its tensors, or by the interpreter."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

LONGEST = 2**31 - 1  # of numbers that are passed on 32 bits
_NOTHING = nullcontext()
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


class Call(NamedTuple):
    """A kernel with all that a plan fixes of its launches; `number` is its own, since no two plans have the same."""

    kernel: Any
    grid: tuple[int, ...]  # where the plan fixes it
    fixed: tuple[int | float | None, ...]  # its last arguments
    constants: dict[str, int]
    warps: int
    number: int


_binaries: dict[tuple, Binary] = {}
_numbers = count()


def fixed(kernel, grid: tuple[int, ...], numbers: tuple, constants: dict[str, int], warps: int) -> Call:
    """A call of its own number."""
    return Call(kernel, grid, numbers, constants, warps, next(_numbers))


def launch(kernel, grid: tuple[int, ...], arguments: tuple, constants: dict, warps: int, interpreted: bool) -> None:
    """Start `kernel` with its arguments, on the current stream of their device; absent tensors are None.

    The first time of its kind by Triton's dispatch, which compiles; then by Triton's launcher alone.
    """
    kind = None if interpreted else (kernel, warps, *constants.values(), *map(_kind, arguments))
    _start(kernel, grid, arguments, constants, warps, kind)


def start(call: Call, grid: tuple[int, ...], tensors: tuple, sizes: tuple, interpreted: bool) -> None:
    """Start a kernel whose plan is known: of its arguments only tensors and sizes must be looked at."""
    kind = None
    if not interpreted:
        of_tensors = [None if t is None else (t.dtype, t.data_ptr() % 16 == 0) for t in tensors]
        kind = (call.number, *of_tensors, *map(_kind, sizes))
    _start(call.kernel, grid, (*tensors, *sizes, *call.fixed), call.constants, call.warps, kind)


def _start(kernel, grid: tuple[int, ...], arguments: tuple, constants: dict, warps: int, kind: tuple | None) -> None:
    """By its kind, or interpreted where that is None."""
    if kind is None:
        from normkit.kernels.cuda.templates.interpreter import interpret

        interpret(kernel, grid, arguments, constants)
        return
    first = arguments[0]
    device = (first if first is not None else next(a for a in arguments if a is not None)).device.index
    kind = (device, *kind)
    binary = _binaries.get(kind)
    driver, knobs = _triton()
    elsewhere = device != torch.cuda.current_device()  # Triton launches on the current GPU
    with torch.cuda.device(device) if elsewhere else _NOTHING:
        if binary is None or _has_hooks(knobs):
            made = kernel[grid](*arguments, **constants, num_warps=warps_of(warps, bool(torch.version.hip)))
            names = kernel.arg_names[len(arguments) :]
            _binaries[kind] = Binary(
                made.run, made.function, made.packed_metadata, tuple(constants[name] for name in names)
            )
            return
        x, y, z = (*grid, 1, 1)[:3]
        stream = driver.active.get_current_stream(device)
        binary.run(x, y, z, stream, binary.function, binary.packed, None, None, None, *arguments, *binary.constants)


def warps_of(warps: int, amd: bool) -> int:
    """How many warps have a program's threads: AMD's are of 64 threads, and sixteen of them are a full program.

    >>> warps_of(32, False), warps_of(32, True), warps_of(4, True)
    (32, 16, 4)
    """
    return min(warps, 16) if amd else warps


def _kind(argument: Tensor | float | None) -> object:
    """What Triton compiles a kernel anew for: types, whether memory is aligned, 1, what 16 divides, long numbers."""
    if argument is None:
        return None
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, argument > LONGEST
    return float


def _has_hooks(knobs: Any) -> bool:
    """Whether somebody, such as a profiler, asks to hear of launches, which only the dispatch tells."""
    return _calls(knobs.launch_enter_hook) or _calls(knobs.launch_exit_hook)


def _calls(hook: Any) -> bool:
    """Whether a hook, or one of a chain of hooks, is there."""
    return hook is not None and bool(getattr(hook, "calls", True))


@cache
def _triton() -> tuple[Any, Any]:
    """Triton's driver and what it can be told at run time."""
    from triton import knobs
    from triton.runtime import driver

    return driver, knobs.runtime


def partial(x: Tensor, programs: int, width: int, wanted: Tensor | None) -> Tensor | None:
    """Room for one sum a program, where a gradient is wanted."""
    return None if wanted is None else torch.empty(programs, width, dtype=torch.float32, device=x.device)
