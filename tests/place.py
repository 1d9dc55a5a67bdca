"""Where tests run the GPU's kernels: by Triton's interpreter, or on a GPU with ``NORMKIT_TEST_DEVICE=cuda``."""

import os
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from normkit.ops import paths

DEVICE = torch.device(os.environ.get("NORMKIT_TEST_DEVICE", "cpu"))
ON_GPU = DEVICE.type == "cuda"
KERNEL = "Triton kernel" if ON_GPU else "Triton kernel, interpreted"
interpreter_only = pytest.mark.skipif(ON_GPU, reason="it looks into the interpreter, or stands for a GPU")


def kernels() -> AbstractContextManager:
    """Within it ops take the GPU's kernels, for tensors on DEVICE."""
    return nullcontext() if ON_GPU else paths.interpreted()


def placed(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor on DEVICE, with its strides and its place in memory."""
    if tensor is None or tensor.device == DEVICE or not ON_GPU:
        return tensor
    memory = tensor.detach().untyped_storage()
    bytes_ = torch.empty(0, dtype=torch.uint8).set_(memory).to(DEVICE)
    moved = torch.empty(0, dtype=tensor.dtype, device=DEVICE)
    return moved.set_(bytes_.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def forget_plans() -> None:
    """Let the next launch read the settings and the templates anew."""
    from normkit.kernels.cuda import channels, engine

    for remembered in (channels.work, channels.whole, engine.forward_call, engine.backward_call):
        remembered.cache_clear()
