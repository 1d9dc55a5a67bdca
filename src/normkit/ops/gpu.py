"""What speaks against the Triton kernels for a call, be it on a GPU or interpreted on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.kernels import cuda

TYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def refusal(x: Tensor, *others: Tensor | None) -> str | None:
    """None if the Triton kernels take these tensors, else why the formula runs, in a user's words."""
    device = x.device
    if device.type not in ("cpu", "cuda"):
        return f"no GPU kernel for a tensor on {device.type}"
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
