"""How much of what passes a bounded function lies where it is flat: dyt, derf, tanh, sigmoid."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from normkit.ops.pointwise import FUNCTIONS
from normkit.watching.signals.signal import Call, Signal, share_of, some
from normkit.watching.store import MEAN

FLAT = 0.99  # of the bound: tanh's slope is 2 % of its largest there, erf's 4 %

PLAIN: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.Tanh: torch.tanh,
    nn.Sigmoid: lambda x: 2 * torch.sigmoid(x) - 1,
    nn.Softsign: nn.functional.softsign,
    nn.Hardtanh: nn.functional.hardtanh,
}
BY_NAME = {"DyT": "tanh", "DynamicTanh": "tanh", "Derf": "erf", "DynamicErf": "erf"}


def function_of(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """Return what squashes in a module, bounded by 1, or None: those of torch, and DyT and Derf, whoever wrote them."""
    if type(module) in PLAIN:
        return PLAIN[type(module)]
    name, alpha = BY_NAME.get(type(module).__name__), getattr(module, "alpha", None)
    if name is None or not isinstance(alpha, Tensor) or alpha.numel() != 1:
        return None
    function, shift = FUNCTIONS[getattr(module, "function", name)], getattr(module, "shift", None)
    return lambda x: function(alpha.detach().float() * x + (0.0 if shift is None else shift.detach().float()))


def read(call: Call) -> Tensor | None:
    """Return the share of entries at more than :data:`FLAT` of the bound."""
    function = function_of(call.module)
    if call.x is None or function is None:
        return None
    return share_of(function(some(call.x)).abs() > FLAT)[None]


SIGNAL = Signal("squash", {"saturated": MEAN}, read, lambda place: function_of(place.module) is not None)
