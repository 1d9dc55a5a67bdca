"""Where random calls run: on the processor, or on a GPU with ``NORMKIT_TEST_DEVICE=cuda``."""

from __future__ import annotations

import os

import torch

DEVICE = torch.device(os.environ.get("NORMKIT_TEST_DEVICE", "cpu"))


def placed(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor on DEVICE, with its strides and its place in memory."""
    if tensor is None or tensor.device.type == DEVICE.type:
        return tensor
    memory = tensor.detach().untyped_storage()
    bytes_ = torch.empty(0, dtype=torch.uint8).set_(memory).to(DEVICE)
    moved = torch.empty(0, dtype=tensor.dtype, device=DEVICE)
    return moved.set_(bytes_.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
