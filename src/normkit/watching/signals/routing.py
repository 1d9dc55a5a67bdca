"""What routers choose: how the tokens are spread over experts, and softmaxes of softmaxes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normkit.watching.signals.listener import SOFTMAXES
from normkit.watching.signals.signal import Call, Signal, vector
from normkit.watching.store import LARGEST, LEAST, MEAN

ROUTER_NAME = re.compile(r"router|top_?k_?gate", re.IGNORECASE)
MIXTURE_NAME = re.compile(r"moe|mixture|experts", re.IGNORECASE)
BIASES = ("selection_bias", "e_score_correction_bias", "expert_bias")  # normkit's, DeepSeek-V3's, torchtitan's
ENOUGH = 8  # choices an expert, of which a load can be read
TWICE = {"softmax_twice": LARGEST}


def read(call: Call) -> Tensor | None:
    """Return the largest share of the choices that one expert got, times the experts; and the share that got none.

    A router gives the numbers of the chosen as whole numbers, beside their weights or alone; of few tokens nothing is
    read.
    """
    experts = choices_in(call.output)
    count = experts_of(call.module)
    if experts is None or count is None or experts.numel() < ENOUGH * count:
        return None
    load = torch.bincount(experts.flatten(), minlength=count).float() / experts.numel()
    return vector(load.max() * count, (load == 0).float().mean())


def selection_bias(module: nn.Module) -> Tensor | None:
    """Return what a module adds to scores before it chooses experts, by the names that are in use."""
    biases = [getattr(module, name, None) for name in BIASES]
    return next((bias for bias in biases if isinstance(bias, Tensor) and bias.numel()), None)


def choices_in(output: Any) -> Tensor | None:
    """Return the whole numbers in what a module gives."""
    parts = output if isinstance(output, tuple | list) else (output,)
    return next((part for part in parts if isinstance(part, Tensor) and part.dtype is torch.int64), None)


def experts_of(module: nn.Module) -> int | None:
    """Return how many experts a router chooses from: the rows of its only matrix."""
    matrices = [p for p in module.parameters() if p.dim() == 2]
    return matrices[0].shape[0] if len(matrices) == 1 else None


def is_router(module: nn.Module) -> bool:
    """Whether a module is called a router, and has one matrix."""
    return bool(ROUTER_NAME.search(type(module).__name__)) and experts_of(module) is not None


def mixtures(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return the modules that are called a mixture of experts or hold a router."""
    for name, module in model.named_modules():
        called = MIXTURE_NAME.search(type(module).__name__) and not isinstance(module, nn.ModuleList)
        if called or any(map(is_router, module.children())):
            yield name, module


def scores_of_softmax(input: Tensor, *_: Any, **__: Any) -> Tensor | None:
    """Return what a softmax is taken of, unless it has the four axes of attention."""
    return input.detach() if 0 < input.dim() < 4 and input.numel() else None


HEARS = dict.fromkeys(SOFTMAXES, scores_of_softmax)
"""What is read of the arguments of torch's functions."""


def shares(x: Tensor) -> Tensor:
    """Return 1 where all rows, of two numbers or more, are shares of 1, else 0: (1,)."""
    rows = x.float()
    whole = (rows.sum(-1) - 1).abs().amax() < 1e-2
    return ((rows.amin() >= 0) & whole & (rows.shape[-1] > 1)).float().reshape(1)


SIGNAL = Signal("routing", {"load": MEAN, "idle": LEAST}, read, lambda place: is_router(place.module))
