"""T3A and LAME around a whole model: its last linear is the classifier, and what goes into that are the features."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from normkit import check
from normkit.inference._norms import mode
from normkit.inference.lame import LEAST, lame
from normkit.inference.t3a import T3A
from normkit.kinds.adapter import Adapter
from normkit.kinds.guard import GUARDS
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
        model.requires_grad_(False)

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
        return self.answer(accurate(logits), features) if bool(features.isfinite().all()) else logits

    @property
    def linear(self) -> nn.Linear:
        """The head."""
        return self.model.get_submodule(self.head)  # type: ignore[return-value]

    def answer(self, logits: Tensor, features: Tensor) -> Tensor:
        """Correct the model's logits by its features."""
        raise NotImplementedError


def _same(out: Any, logits: Tensor) -> bool:
    return isinstance(out, Tensor) and out.shape == logits.shape and torch.equal(out.nan_to_num(), logits.nan_to_num())


class OfCentroids(OfFeatures):
    """:class:`normkit.T3A` in the place of a model's head; logits have the length of the head's mean row."""

    name = "t3a"

    def __init__(self, model: nn.Module, *, supports: int = 100, head: str | None = None, guard: str = "off"):
        super().__init__(model, head=head, guard=guard)
        linear = self.linear
        with torch.random.fork_rng(devices=[]):  # the first numbers of T3A are drawn, and not kept
            made = T3A(linear.in_features, linear.out_features, supports=supports, bias=linear.bias is not None)
        self.t3a = made.to(linear.weight)
        self.begin()

    @torch.no_grad()
    def begin(self) -> None:
        """The centroids are the rows of the head."""
        linear = self.linear
        self.t3a.weight.copy_(linear.weight)
        if self.t3a.bias is not None and linear.bias is not None:
            self.t3a.bias.copy_(linear.bias)
        self.t3a.reset()

    def answer(self, logits: Tensor, features: Tensor) -> Tensor:
        """Keep features, and answer by the centroids."""
        return self.t3a(features) * accurate(self.t3a.weight).norm(dim=1).mean().to(features)


class OfNeighbours(OfFeatures):
    """:func:`normkit.lame` behind a model: of each batch, samples with near features get like labels."""

    name = "lame"

    def __init__(self, model: nn.Module, *, head: str | None = None, guard: str = "off", **options: Any):
        super().__init__(model, head=head, guard=guard)
        self.options = options
        lame(torch.full((1, 2), 0.5), torch.ones(1, 2), **options)  # which refuses what it does not take

    def answer(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return the logarithm of the assignments."""
        return (lame(logits.softmax(1), features, **self.options) + LEAST).log()


OF_FEATURES: dict[str, type[OfFeatures]] = {made.name: made for made in (OfCentroids, OfNeighbours)}
