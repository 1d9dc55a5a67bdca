"""What Muon and its kin share: momentum, orthogonalized, and Adam for the groups that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.gradient._matrices import MatrixOptimizer, newton_schulz
from normkit.gradient._optimizer import entrywise, kept, tensors
from normkit.gradient._sharded import like, local

DTYPES = ("bfloat16", "float16", "float32", "float64")
ADAM = {"lr": 3e-4, "weight_decay": 0.0}  # of groups with use_muon=False, where they do not say otherwise


class Momentum(MatrixOptimizer):
    """An optimizer whose steps are orthogonalized momentum; groups with ``use_muon=False`` get Adam."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; one with ``use_muon=False`` has Adam's usual learning rate and no decay by default."""
        given = {"use_muon": True, **param_group}
        super().add_param_group(given if given["use_muon"] else {**ADAM, **given})

    def check(self, group: dict) -> None:
        """Require sound settings of a group, and matrices."""
        super().check(group)
        check.size(self, "ns_steps", group["ns_steps"], least=0)
        check.choice(self, "ns_dtype", _word(group["ns_dtype"]), (None, *DTYPES))
        if len(group["ns_coefficients"]) != 3:
            raise ValueError(f"{type(self).__name__}: ns_coefficients must be three, not {group['ns_coefficients']}")
        for p in tensors(group["params"]) if group.get("use_muon", True) else ():
            self.check_shape(p, group)

    def check_shape(self, p: Tensor, group: dict) -> None:
        """Require a matrix, a stack of them or a kernel."""
        if p.dim() < 2:
            raise ValueError(
                f"{type(self).__name__}: params has one of shape {tuple(p.shape)}, and matrices, stacks of them and "
                "kernels are wanted; a group with use_muon=False takes the others"
            )

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether the group is one of matrices."""
        return group["use_muon"]

    def moved(self, group: dict) -> list[Tensor]:
        """All matrices; where there is no gradient the momentum goes on, as in the authors' code."""
        return list(group["params"]) if group["use_muon"] else super().moved(group)

    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, and return it with singular values near 1."""
        (buffers,) = kept(params, states, "momentum_buffer")
        dtype = _word(group["ns_dtype"])
        found = [torch.empty_like(local(p), dtype=getattr(torch, dtype) if dtype else p.dtype) for p in params]

        def work(found, grads, buffers):
            torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, buffers, group["momentum"]) if group["nesterov"] else buffers
            torch._foreach_copy_(found, ahead)

        entrywise(work, found, grads, buffers)
        settings = (group["ns_steps"], group["ns_coefficients"])
        us = [like(u, p) for u, p in zip(found, params, strict=True)]
        return self.directions(us, lambda x: newton_schulz(x, *settings), group)


def step(params: Sequence[Tensor], directions: Sequence[Tensor], rates: Sequence[float], group: dict) -> None:
    """Shrink the parameters by the group's decay, and go against the directions, each by its rate."""

    def work(params, directions, rates):
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        for w, o, rate in zip(params, directions, rates, strict=True):
            w.add_(o, alpha=-rate)

    entrywise(work, params, directions, rates)


def wideness(p: Tensor) -> float:
    """Muon's factor for the shape: the root of rows over columns where there are more rows, of the last two axes."""
    return max(1.0, p.shape[-2] / max(1, p.shape[-1])) ** 0.5


def _word(dtype: Any) -> Any:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
