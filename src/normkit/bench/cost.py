"""Costs other than time: bytes that must move, memory held at once, the price of the import."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from normkit.bench.timing import Entrant

# Operations that move or compute nothing: room for a result, and other views of a tensor.
ROOM = {"empty", "empty_like", "empty_strided", "new_empty", "alias", "detach", "detach_", "to", "contiguous"}
VIEWS = {"view", "reshape", "flatten", "unflatten", "transpose", "t", "permute", "movedim", "select", "slice", "unbind"}
VIEWS |= {"as_strided", "squeeze", "unsqueeze", "expand", "result_type", "promote_types", "resolve_conj", "resolve_neg"}

IMPORT = "import torch, time; t = time.perf_counter(); import normkit; normkit.RMSNorm; print(time.perf_counter() - t)"


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return how many bytes the numbers take."""
    return sum(t.numel() * t.element_size() for t in tensors)


def least_bytes(inputs: Sequence[Tensor], outputs: Sequence[Tensor], parameters: Sequence[Tensor], which: str) -> int:
    """Return the bytes that any implementation reads or writes.

    Forward: inputs and parameters are read, outputs written. Training does so, reads inputs, parameters and the
    outputs' gradients once more, and writes the gradients of the floating-point inputs and of the parameters.
    """
    forward = bytes_of(inputs) + bytes_of(parameters) + bytes_of(outputs)
    if which == "forward":
        return forward
    written = bytes_of(i for i in inputs if i.is_floating_point()) + bytes_of(parameters)
    return 2 * forward + written


def peak_bytes(entrant: Entrant) -> int:
    """Return the most memory that one call holds above what was there before, results included."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with _silence(), entrant.around(), torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        kept = entrant.call()
    del kept
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def computes(call: Callable[[], object], least: int) -> bool:
    """Whether torch's own operations compute on tensors of so many entries within a call, beside any kernel."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with _silence(), torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        call()
    return any(
        event.name().startswith("aten::")
        and event.name()[6:] not in ROOM | VIEWS
        and max(map(math.prod, event.shapes())) >= least
        for event in profile.profiler.kineto_results.events()
        if event.shapes()
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the profiler's C++ from writing to the terminal."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def first_seconds(times: int = 3) -> float:
    """Return how long ``import normkit`` and its first norm take after ``import torch``, in fresh processes."""
    command = [sys.executable, "-c", IMPORT]
    return statistics.median(float(subprocess.check_output(command, text=True)) for _ in range(times))
