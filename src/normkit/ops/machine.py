"""What the machine code of the GPU's kernels is made of, and of what Inductor writes in their place, without a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.kernels import cuda
from normkit.ops import paths
from normkit.ops.pointwise import dyt
from normkit.ops.row import layer_norm, rms_norm


def absent() -> str | None:
    """Why there are no Triton kernels, or None."""
    return cuda.absent()


def machine_code(targets: Sequence[str], types: Sequence[str], widths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Compile the kernels for GPUs that are not here, and tell what their machine code is made of, row by row.

    targets: of sm_80, sm_90, sm_100 and gfx942. types: of bf16, fp16 and fp32.
    """
    reason = absent()
    if reason is not None:
        raise ValueError(f"machine_code: {reason}")
    from normkit.kernels.cuda import static, variants

    for given, known, what in ((targets, static.TARGETS, "target"), (types, variants.BYTES, "type")):
        for name in given:
            check.choice("machine_code", what, name, tuple(known))
    for variant in variants.variants(types, widths):
        for target in targets:
            yield variant.row(target)
    nvidia = [target for target in targets if static.TARGETS[target][0] == "cuda"]
    try:
        for kind in types:
            for width in widths:
                for variant in inductors(kind, width):
                    yield from (variant.row(target) for target in nvidia)
    except RuntimeError as error:  # of a torch whose insides are others
        warnings.warn(f"{error}; its rows are left out", stacklevel=2)


def inductors(kind: str, width: int) -> Iterator[Any]:
    """What Inductor makes of formulas of rows of half precision, of which it is told that there are many."""
    from normkit.kernels.cuda import inductor

    if kind == "fp32":  # whose large arrays cannot be told from others
        return
    rows, kinds = max(16384, 4 * width), {"bf16": torch.bfloat16, "fp16": torch.float16}
    vector = (width,), torch.float32
    single = (1,), torch.float32
    calls: dict[str, tuple[Callable, tuple]] = {
        "rms_norm": (partial(_formula, rms_norm, width), (vector,)),
        "layer_norm": (partial(_formula, layer_norm, width), (vector, vector)),
        "dyt": (_dyt, (single, vector, vector)),
    }
    for name, (call, more) in calls.items():
        passes = inductor.generate(call, [((rows, width), kinds[kind]), *more], learning=True)
        for way, graph in zip(("forward", "backward"), passes, strict=True):
            yield from inductor.variants(graph, f"Inductor's {name}, {way}", kind, width)


def _formula(op: Any, width: int, x: Tensor, *parameters: Tensor) -> Tensor:
    with paths.formula_only():
        return op(x, (width,), *parameters)


def _dyt(x: Tensor, *parameters: Tensor) -> Tensor:
    with paths.formula_only():
        return dyt(x, *parameters)
