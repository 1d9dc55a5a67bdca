"""Methods of features around a whole model: its last linear is the classifier, what goes into that are the features."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from normkit import check
from normkit.kinds.adapter import Adapter
from normkit.kinds.guard import GUARDS
from normkit.parameters import mode
from normkit.statistics import accurate


class OfFeatures(Adapter):
    """An adapter that trains nothing, and answers from what goes into a model's last linear, its head.

    Args:
        model: any model that returns what its head returns; it is taken over and left as it is.
        head: the name of that linear; None: the last one of ``named_modules``.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.
    """

    name: ClassVar[str]

    def __init__(self, model: nn.Module, *, head: str | None = None, guard: str = "off"):
        parts = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
        linears = [name for name, part in parts.items() if isinstance(part, nn.Linear)]
        if not linears:
            raise ValueError(f"{self.name}: the model has no torch.nn.Linear that could be its head")
        if head is not None:
            check.choice(self.name, "head", head, linears)
        check.choice(self.name, "guard", guard, GUARDS)
        super().__init__(model, torch.optim.SGD, guard)
        if self.guard is not None:
            self.guard.owner = self.name
        self.head = linears[-1] if head is None else head

    def _get_name(self) -> str:
        return self.name

    def extra_repr(self) -> str:
        """Write which linear is the head."""
        return f"head={self.head!r}"

    @torch.no_grad()
    def observe(self, x: Tensor) -> Tensor:
        """Answer a batch by its features; one whose features are not finite is answered by the head, and forgotten."""
        seen: list[tuple[Tensor, Any]] = []
        hook = self.linear.register_forward_hook(lambda _, inputs, out: seen.append((inputs[0], out)))
        try:
            with mode(self.model, False):
                logits = self.logits(self.model, x)
        finally:
            hook.remove()
        if not seen or not _same(seen[-1][1], logits):
            raise ValueError(
                f"{self.name}: the model does not return what its linear {self.head!r} returns; name the one that "
                "makes its logits by head="
            )
        features = accurate(seen[-1][0])
        if not bool(features.isfinite().all()):
            return logits
        return self.answer(accurate(logits), features).to(logits.dtype)

    @property
    def linear(self) -> nn.Linear:
        """The head."""
        return self.model.get_submodule(self.head)  # type: ignore[return-value]

    def answer(self, logits: Tensor, features: Tensor) -> Tensor:
        """Correct the model's logits by its features."""
        raise NotImplementedError


def _same(out: Any, logits: Tensor) -> bool:
    return isinstance(out, Tensor) and out.shape == logits.shape and torch.equal(out.nan_to_num(), logits.nan_to_num())
