"""How work is best shared out on a GPU: ``python benchmarks/gpu_settings.py`` tries divisions and prints the quickest.

The quickest goes by hand into `normkit/kernels/cuda/settings.py`. It takes some two minutes on an H100. A division is
rows and entries of a program's tile, its warps, and programs a multiprocessor.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

os.environ["NORMKIT_TRIAL"] = "off"  # each division would be tried out first

import torch
from torch import Tensor

from normkit import ops
from normkit.bench.gpu import device_seconds
from normkit.kernels.cuda import channels, engine, settings

ROUNDS = 8
VECTORS = ((4096, 768), (16384, 1024), (32768, 256), (65536, 64))
IMAGES = ((32, 256, 56, 56), (8, 1280, 32, 32), (64, 512, 14, 14), (4096, 1024))
PLANS = (
    *(channels.work, channels.whole, engine.forward_call, engine.backward_call),
    *(engine.point_forward_call, engine.point_backward_call),
)


@contextmanager
def replaced(**functions: Callable) -> Iterator[None]:
    """Let functions of the settings be others, and plans be made anew."""
    before = {name: getattr(settings, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(settings, name, function)
        forget()
        yield
    finally:
        for name, function in before.items():
            setattr(settings, name, function)
        forget()


def forget() -> None:
    """Forget all plans."""
    for plan in PLANS:
        plan.cache_clear()


def micros(call: Callable, inputs: list[Tensor], way: str) -> float:
    """Microseconds on the device alone."""
    return 1e6 * device_seconds({"normkit": (call, nullcontext)}, inputs, way, ROUNDS)["normkit"]


def number(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers that learn."""
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


def programs(setting: settings.Setting, most: int) -> Callable:
    """The number of programs of a division: so many a multiprocessor."""
    usual = settings.programs

    def share(rows: int, other: settings.Setting, processors: int) -> tuple[int, int]:
        if other is not setting:
            return usual(rows, other, processors)
        chunk = -(-rows // (processors * most))
        chunk = -(-chunk // setting.rows) * setting.rows
        return -(-rows // chunk), chunk

    return share


def rows(name: str, call: Callable, inputs: list[Tensor], way: str, setting: str, more: Iterable[int]) -> None:
    """Try divisions of rows of up to 1024 entries."""
    size, given = tuple(inputs[0].shape), getattr(settings, setting)
    block, times = settings.power_of_two(size[1]), []
    for tile, warps, most in itertools.product((1024, 2048, 4096), (1, 2, 4, 8), more):
        one = settings.Setting(max(1, tile // block), block, warps)
        with replaced(**{setting: lambda width, one=one: one}, programs=programs(one, most)):
            times.append((micros(call, inputs, way), f"rows {one.rows}, warps {warps}, programs {most}"))
    print_best(f"{name} {way} {size}, now {given(size[1])}", micros(call, inputs, way), times)


def print_best(what: str, now: float, times: list[tuple[float, str]]) -> None:
    """A line of what is, and the three quickest."""
    print(f"{what}: {now:.1f} µs; " + "; ".join(f"{time:.1f} by {how}" for time, how in sorted(times)[:3]), flush=True)


def images(shape: tuple[int, ...], last: bool) -> None:
    """Try tiles of batch norm's channels, both passes together."""
    x = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last) if last else x
    inputs = [x.requires_grad_(), number(shape[1]), number(shape[1])]

    def both() -> float:
        return sum(micros(lambda x, w, b: ops.batch_norm(x, w, b)[0], inputs, way) for way in ("forward", "backward"))

    flat = last or len(shape) == 2
    names = ("CHANNELS", "LAST", "FILLING_LAST") if flat else ("LINE", "TILE", "FILLING")
    sizes = ((32, 64), (1024, 2048), (4, 8)) if flat else ((256, 512, 1024), (1024, 2048, 4096), (4, 8))
    given: dict[str, Any] = {name: getattr(settings, name) for name in names}
    now, times = both(), []
    for values in itertools.product(*sizes):
        with replaced():
            for name, value in zip(names, values, strict=True):
                setattr(settings, name, value)
            times.append((both(), ", ".join(f"{n} {v}" for n, v in zip(names, values, strict=True))))
        for name, value in given.items():
            setattr(settings, name, value)
    print_best(f"batch_norm {shape}{', channels last' if last else ''}, now {given}", now, times)


def main() -> None:
    """Try all."""
    for size in VECTORS:
        x, gain, shift = number(*size, dtype=torch.bfloat16), number(size[1]), number(size[1])
        layer, dyt = (lambda x, w, b: ops.layer_norm(x, x.shape[-1:], w, b)), (lambda x, a, w, b: ops.dyt(x, a, w, b))
        rows("layer_norm", layer, [x, gain, shift], "forward", "forward", (8,))
        rows("layer_norm", layer, [x, gain, shift], "backward", "backward", (2, 4, 8))
        rows("dyt", dyt, [x, number(1), gain, shift], "backward", "points_backward", (2, 4, 8))
    for shape in IMAGES:
        for last in (False, True)[: len(shape) - 1]:
            images(shape, last)


if __name__ == "__main__":
    main()
