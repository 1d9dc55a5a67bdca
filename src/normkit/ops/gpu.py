"""What speaks against the Triton kernels for a call, be it on a GPU or interpreted on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.kernels import cuda
from normkit.ops import paths

TYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def refusal(x: Tensor, *others: Tensor | None) -> str | None:
    """None if the Triton kernels take these tensors, else why the formula runs, in a user's words."""
    device = x.device
    reason = cuda.absent() if device.type == "cpu" else cuda.against(device.index)
    if reason is not None:
        return reason
    for tensor in (x, *others):
        if tensor is not None and (reason := _tensor(tensor, device)) is not None:
            return reason
    return None if x.numel() else "the input is empty"


def lacking(x: Tensor) -> bool:
    """Whether a tensor is on a GPU that has no Triton kernels, though nobody has turned them off."""
    return x.is_cuda and not cuda.off() and cuda.against(x.device.index) is not None


def _tensor(x: Tensor, device: torch.device) -> str | None:
    if type(x) not in _PLAIN:
        return f"{type(x).__name__} is a tensor subclass"
    if x.device != device:
        return f"the tensors are on {device} and {x.device}"
    if x.dtype not in TYPES:
        return f"no GPU kernel for {x.dtype}"
    if x.layout is not torch.strided:
        return f"no GPU kernel for the layout {x.layout}"
    if x.is_neg() or x._is_zerotensor():
        return "a lazily negated or zero tensor has no numbers in memory"
    return "gradients are taken in a batch" if torch._C._functorch.is_legacy_batchedtensor(x) else None


def machine_code(targets: Sequence[str], types: Sequence[str], widths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Compile the kernels for GPUs that are not here, and tell what their machine code is made of, row by row.

    targets: of sm_80, sm_90, sm_100 and gfx942. types: of bf16, fp16 and fp32.
    """
    reason = cuda.absent()
    if reason is not None:
        raise ValueError(f"machine_code: {reason}")
    from normkit.kernels.cuda import static, variants

    for given, known, what in ((targets, static.TARGETS, "target"), (types, variants.BYTES, "type")):
        for name in given:
            check.choice("machine_code", what, name, tuple(known))
    for variant in variants.variants(types, widths):
        for target in targets:
            yield variant.row(target)
    for kind in types:
        for width in widths:
            for variant in inductors(kind, width):
                yield from (variant.row(target) for target in targets if static.TARGETS[target][0] == "cuda")


def inductors(kind: str, width: int) -> Iterator[Any]:
    """What Inductor makes of the formulas of rows of half precision, of which it is told that there are many."""
    from normkit.kernels.cuda import inductor
    from normkit.ops.row import layer_norm, rms_norm

    if kind == "fp32":  # whose large arrays cannot be told from others
        return
    rows, kinds = max(16384, 4 * width), {"bf16": torch.bfloat16, "fp16": torch.float16}
    vector = (width,), torch.float32
    for name, op, more in (("rms_norm", rms_norm, 1), ("layer_norm", layer_norm, 2)):
        call = partial(_formula, op, width)
        passes = inductor.generated(call, [((rows, width), kinds[kind]), *[vector] * more], learning=True)
        for way, graph in zip(("forward", "backward"), passes, strict=True):
            yield from inductor.variants(graph, f"Inductor's {name}, {way}", kind, width)


def _formula(op: Any, width: int, x: Tensor, *parameters: Tensor) -> Tensor:
    with paths.formula_only():
        return op(x, (width,), *parameters)
