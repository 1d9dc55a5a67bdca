"""Methods that are optimizers: ``torch.optim.Optimizer`` itself is their base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from normkit.kinds.kind import OPTIMIZER_LINES, Kind, Subject, example

if TYPE_CHECKING:
    from normkit.catalog import Card


@dataclass(frozen=True)
class OptimizerKind(Kind):
    """An optimizer: built over parameters, called by ``step()``; the layout of its card is that of a parameter."""

    def takes(self, card: Card) -> list[str]:
        """A call takes nothing: gradients lie on the parameters."""
        return []

    def width(self, card: Card) -> None:
        """There is none."""

    def use(self, card: Card, arguments: str, inputs: str) -> str:
        """Over the parameters of a model."""
        typed = ", ".join(filter(None, ["model.parameters()", arguments]))
        return (
            f'optimizer = nk.{card.entry.__name__}({typed})  # or nk.create("{card.name}", {typed})\noptimizer.step()'
        )

    def saved(self, instance: torch.optim.Optimizer) -> dict[str, tuple[Tensor, bool]]:
        """What is kept of the first parameter, after a step."""
        for group in instance.param_groups:
            for p in group["params"]:
                p.grad = torch.ones_like(p)
        instance.step()
        return {
            name.removeprefix("0."): (value, False)
            for name, value in state_tensors(instance).items()
            if name.startswith("0.")
        }

    def arguments(self, card: Card, features: int = 8, **overrides: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Parameters of a small model, and the card's example arguments."""
        dtype = overrides.pop("dtype", torch.float32)
        return (self.parameters(card, features, dtype),), {**example(card, features), **overrides}

    def parameters(self, card: Card, features: int = 8, dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
        """A matrix, a square one, and where the method takes any tensor a vector and a kernel."""
        shapes: list[tuple[int, ...]] = [(features, features // 2), (features, features)]
        if "..." in card.shape.axes:
            shapes += [(features,), (features, 2, 3, 3)]
        generator = torch.Generator().manual_seed(0)
        drawn = (torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu") for shape in shapes)
        return [torch.nn.Parameter(p.to(dtype)) for p in drawn]

    def subject(self, card: Card, features: int = 8, dtype: torch.dtype = torch.float64, **drawing: Any) -> Subject:
        """An optimizer, gradients for one step, and a call that takes it and returns the parameters."""
        instance = self.small(card, features, dtype=dtype)
        learned = [p for group in instance.param_groups for p in group["params"]]
        generator = torch.Generator().manual_seed(drawing.get("seed", 0))
        grads = [
            torch.randn(p.shape, generator=generator, dtype=torch.float64, device="cpu").to(dtype) for p in learned
        ]

        def call(*grads: Tensor) -> tuple[Tensor, ...]:
            for parameter, grad in zip(learned, grads, strict=True):
                parameter.grad = grad.clone()
            instance.step()
            return tuple(p.detach().clone() for p in learned)

        return Subject(instance, list(grads), call, {str(i): p for i, p in enumerate(learned)}, state_tensors(instance))


def state_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of an optimizer's state, by the number of its parameter and its name."""
    states = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, own in states.items() for name, value in own.items() if torch.is_tensor(value)}


OPTIMIZER = OptimizerKind("optimizer", "optimizer", "gradient", OPTIMIZER_LINES)
