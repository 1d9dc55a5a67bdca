"""Where tests run the GPU's kernels: by Triton's interpreter, or on a GPU with ``NORMKIT_TEST_DEVICE=cuda``."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from fuzz.placed import DEVICE
from normkit.ops import paths

ON_GPU = DEVICE.type == "cuda"
KERNEL = "Triton kernel" if ON_GPU else "Triton kernel, interpreted"
interpreter_only = pytest.mark.skipif(ON_GPU, reason="it looks into the interpreter, or stands for a GPU")


def kernels() -> AbstractContextManager:
    """Within it ops take the GPU's kernels, for tensors on DEVICE."""
    return nullcontext() if ON_GPU else paths.interpreted()


def forget_plans() -> None:
    """Let the next launch read the settings and the templates anew."""
    from normkit.kernels.cuda import channels, engine

    plans = channels.work, channels.whole, channels.add_up_call, engine.forward_call, engine.backward_call
    for remembered in (*plans, engine.point_forward_call, engine.point_backward_call):
        remembered.cache_clear()
