"""What Muon and its kin share: momentum, orthogonalized, and Adam for the groups that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from normkit import check
from normkit.gradient._matrices import Hidden, matrix_shape, newton_schulz
from normkit.gradient._optimizer import MOMENTS, entrywise, keep, multiply, plain_word
from normkit.gradient._sharded import like, local
from normkit.ops.polar import Triple

DTYPES = ("bfloat16", "float16", "float32", "float64")
FACTORS = (None, "original", "match_rms_adamw", "match_rms", "rms_to_rms")
CONVERGING: Triple = (2.0, -1.5, 0.5)  # brings singular values to 1 in the end; Muon's leaves them at 0.7 to 1.2
Coefficients = Triple | Sequence[Triple]


class Momentum(Hidden):
    """An optimizer whose steps are orthogonalized momentum; in Muon's own code it goes on without a gradient."""

    state_names = MOMENTS | {"momentum_buffer"}
    adam: ClassVar[dict[str, Any]] = {"lr": 3e-4, "weight_decay": 0.0}

    def check(self, group: dict) -> None:
        """Require sound settings of a group, and matrices."""
        super().check(group)
        check.size(self, "ns_steps", group["ns_steps"], least=0)
        check.choice(self, "ns_dtype", plain_word(group["ns_dtype"]), (None, *DTYPES))
        check.eps(self, group.get("ns_eps", 0.0), "ns_eps")
        check.number(self, "ns_safety", group.get("ns_safety", 1.0), 0.0, open_low=True)
        triples(self, group["ns_coefficients"], 1)

    def skips(self, group: dict) -> bool:
        """Whether a matrix without a gradient is left alone."""
        return False

    def averaged(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, an average, and return what is orthogonalized, in the type for that."""
        (buffers,) = keep(params, states, "momentum_buffer")
        dtype = plain_word(group["ns_dtype"])
        updates = [torch.empty_like(local(p), dtype=getattr(torch, dtype) if dtype else p.dtype) for p in params]

        def work(updates, grads, buffers):
            torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, buffers, group["momentum"]) if group.get("nesterov", True) else buffers
            torch._foreach_copy_(updates, ahead)

        entrywise(work, updates, grads, buffers)
        return [like(u, p) for u, p in zip(updates, params, strict=True)]

    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, and return the directions."""
        us = self.averaged(params, grads, states, group)
        return self.directions(us, lambda x: self.direction(x, group), group)

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """What is made of the momentum of whole matrices (..., rows, columns)."""
        return self.polar(x, group)

    def polar(self, x: Tensor, group: dict) -> Tensor:
        """Bring singular values near 1, as the group's settings have it; the result has the type of ``x``."""
        coefficients = triples(self, group["ns_coefficients"], group["ns_steps"])
        dtype, options = plain_word(group["ns_dtype"]), {"eps": group.get("ns_eps", 1e-7)}
        options |= {"safety": group.get("ns_safety", 1.0), "gram": group.get("gram")}
        return newton_schulz(x.to(getattr(torch, dtype)) if dtype else x, coefficients, **options).to(x.dtype)


class Kin(Momentum):
    """A sister of Muon, for matrices, stacks of them and kernels; what has no gradient is left alone."""

    adam: ClassVar[dict[str, Any]] = Hidden.adam

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.choice(self, "adjust_lr", group.get("adjust_lr"), FACTORS)

    def skips(self, group: dict) -> bool:
        """Whether a matrix without a gradient is left alone."""
        return True

    def summed(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, a sum, and return what is orthogonalized, in the parameters' type."""
        (buffers,) = keep(params, states, "momentum_buffer")
        updates = [torch.empty_like(local(p)) for p in params]

        def work(updates, grads, buffers):
            multiply(buffers, group["momentum"])
            torch._foreach_add_(buffers, grads)
            ahead = (
                torch._foreach_add(grads, buffers, alpha=group["momentum"]) if group.get("nesterov", True) else buffers
            )
            torch._foreach_copy_(updates, ahead)

        entrywise(work, updates, grads, buffers)
        return [like(u, p) for u, p in zip(updates, params, strict=True)]

    def averaged(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, an average, and return what is orthogonalized, in the parameters' type."""
        return super().averaged(params, grads, states, {**group, "ns_dtype": None})

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        directions = self.orthogonal(params, grads, states, group)
        rule = group.get("adjust_lr", "original")
        step(params, directions, [group["lr"] * factor(rule, *matrix_shape(p)) for p in params], group)

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """What is made of the momentum of whole matrices, of length 1 where ``adjust_lr`` wants it."""
        return unit(self.polar(x, group), group.get("adjust_lr", "original"))


def triples(owner: object, coefficients: Coefficients, steps: int, name: str = "ns_coefficients") -> list[Triple]:
    """The coefficients of each step: the last of a list goes on, and those of later steps are left out.

    >>> triples(None, [(3.0, -3.0, 1.0), (2.0, -1.5, 0.5)], 3)
    [(3.0, -3.0, 1.0), (2.0, -1.5, 0.5), (2.0, -1.5, 0.5)]
    """
    listed: Any = coefficients if isinstance(coefficients, Sequence) else []
    if len(listed) and isinstance(listed[0], (int, float)):
        listed = [listed]
    if not listed or any(not isinstance(row, Sequence) or len(row) != 3 for row in listed):
        raise ValueError(f"{check.whose(owner)}: {name} must be three numbers, or lists of three, not {coefficients}")
    rows = [tuple(check.number(owner, name, value) for value in row) for row in listed]
    return [rows[min(i, len(rows) - 1)] for i in range(steps)]  # type: ignore[misc]


def step(params: Sequence[Tensor], directions: Sequence[Tensor], rates: Sequence[float], group: dict) -> None:
    """Shrink the parameters by the group's decay, and go against the directions, each by its rate."""

    def work(params, directions, rates):
        if group["weight_decay"]:
            shrink(params, directions, group)
        for w, o, rate in zip(params, directions, rates, strict=True):
            w.add_(o, alpha=-rate)

    entrywise(work, params, directions, rates)


def shrink(params: Sequence[Tensor], directions: Sequence[Tensor], group: dict) -> None:
    """Decay the parameters: with ``cautious_decay`` only entries that the step makes smaller, or that are not moved."""
    rate = group["lr"] * group["weight_decay"]
    if not group.get("cautious_decay", False):
        multiply(params, 1 - rate)
        return
    for w, o in zip(params, directions, strict=True):
        w.sub_(torch.where(o.sign() * w >= 0, w, 0), alpha=rate)


def factor(rule: str | None, rows: int, columns: int) -> float:
    """A dialect's factor for the shape of a matrix; that of ``match_rms`` is for directions of length 1 (:func:`unit`).

    >>> [round(factor(rule, 8, 2), 3) for rule in FACTORS]
    [1.0, 2.0, 0.566, 0.8, 2.0]
    """
    if rule is None or not rows or not columns:
        return 1.0
    if rule == "match_rms_adamw":
        return 0.2 * max(rows, columns) ** 0.5
    if rule == "match_rms":
        return 0.2 * (rows * columns) ** 0.5
    return (rows / columns if rule == "rms_to_rms" else max(1.0, rows / columns)) ** 0.5


def unit(x: Tensor, rule: str | None) -> Tensor:
    """Matrices of length 1 where the rule is ``match_rms``; else as they are."""
    if rule != "match_rms":
        return x
    return x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def wideness(p: Tensor) -> float:
    """Muon's factor for the shape: the root of rows over columns where there are more rows, of the last two axes."""
    return max(1.0, p.shape[-2] / max(1, p.shape[-1])) ** 0.5
