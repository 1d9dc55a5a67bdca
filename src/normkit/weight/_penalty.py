"""What losses on weights are asked by who collects them over a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.utils import parametrize

from normkit.kinds import Loss


class Penalty(Loss):
    """A loss on a layer's weight; ``everywhere``: on every parameter of every layer, each by itself.

    ``beside``: also on what the layer has beside it, which is all that counts where a weight is ``shared`` with a layer
    whose loss it is in.
    """

    everywhere: ClassVar[bool] = False
    beside: ClassVar[bool] = False
    shared = False

    @classmethod
    def tensors(cls, module: nn.Module) -> list[str]:
        """The names of a layer's tensors that each get a loss."""
        own = [name for name, p in module._parameters.items() if p is not None and p.requires_grad]
        own += list(module.parametrizations) if parametrize.is_parametrized(module) else []  # type: ignore[arg-type]
        return own if cls.everywhere else [name for name in own if name == "weight"]

    @classmethod
    def misfit(cls, value: Tensor, options: Mapping[str, Any]) -> str:
        """Why a tensor gets none, or an empty string."""
        return "" if cls.everywhere or value.dim() > 1 else "a vector"

    def inputs(self, module: nn.Module, tensor: str) -> tuple[Tensor, ...] | None:
        """What the loss is called with; None: it is left out this time."""
        return (getattr(module, tensor),)

    def reset(self, weight: Tensor) -> None:
        """Begin at a weight."""
