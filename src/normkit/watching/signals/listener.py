"""Hearing what a module hands to torch's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from normkit.watching.signals.signal import local_tensors

SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)


class Listener(TorchFunctionMode):
    """While entered, hands what is heard of functions to ``take``; nothing is changed, kernels run as without it.

    hears: what is read of the arguments of each function, None where there is nothing to read.
    failed: called with what could not be read.
    """

    looks_on = True

    def __init__(
        self,
        hears: Mapping[Any, Callable[..., Tensor | None]],
        take: Callable[[Tensor], None],
        failed: Callable[[Exception], None],
    ):
        super().__init__()
        self.hears, self.take, self.failed = hears, take, failed

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in self.hears:
            try:
                device = next(local_tensors((args, kwargs))).device.type
                with torch.no_grad(), torch.autocast(device, enabled=False):
                    reading = self.hears[function](*args, **kwargs)
                    if reading is not None:
                        self.take(reading)
            except Exception as error:
                self.failed(error)
        return function(*args, **kwargs)
