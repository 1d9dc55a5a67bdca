"""MuonClip: Muon, and queries and keys that shrink where their scores grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._muon import Coefficients, Kin
from normkit.gradient._optimizer import Groups, settings, tensors
from normkit.gradient._sharded import local, part_of
from normkit.statistics import accurate

ROLES = ("query", "key", "query_rotary", "key_rotary")


@method(
    "muonclip",
    paper="Kimi K2: Open Agentic Intelligence (Kimi Team, 2025), arXiv 2507.20534",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("muon",),
    evidence="library",
    provenance="pytorch_optimizer's, of which the factors of the clip are float32",
)
class MuonClip(Kin):
    """Take Muon's step, then shrink the heads of queries and keys whose largest score is above a bound.

    For attention without norms of queries and keys, whose scores grow without bound in long runs. With ``qk-norm`` in
    the model ``muon`` is enough.

    With g the gradient of a matrix of r rows and c columns, largest_h the largest score of head h since the last step,

        b <- momentum b + g,    w <- w (1 - lr weight_decay) - lr 0.2 sqrt(max(r, c)) NS(b)
        gamma_h = min(1, bound / largest_h),    rows of head h <- gamma_h^e (rows of head h)

    A group says what it holds: ``qk_clip="query"`` (e = balance), ``"key"`` (e = 1 - balance), ``"query_rotary"`` (e =
    1) or ``"key_rotary"``, which stays. ``largest`` of the group, a list or a tensor of a number for each head, is to
    be set before each step; None: no clip. Heads are equal blocks of rows. Heads that share a key get the largest of
    them.

    ``nk.Muon(..., qk_clip=nk.ScoreClip(model))`` sees the scores of a ``Decoder`` by itself.

    A kernel (out, in, ...) is the matrix (out, rest); a tensor of three axes is a stack of matrices.

    Args:
        params: matrices, or groups of parameters; those with ``use_muon=False`` get Adam, as in Muon.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        adjust_lr: the factor for the shape of a matrix, as in Muon.
        bound: the largest score that is let be.
        balance: the share of the shrinking that queries take.
        ns_steps: rounds of the polynomial that orthogonalizes.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_eps: added to the length that a matrix is divided by first.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``.

    Kimi K2 (2025), arXiv 2507.20534.
    """

    free = Kin.free | {"largest"}

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        adjust_lr: str | None = "match_rms_adamw",
        bound: float = 100.0,
        balance: float = 0.5,
        ns_steps: int = 5,
        ns_coefficients: Coefficients = (3.4445, -4.775, 2.0315),
        ns_eps: float = 1e-7,
        ns_dtype: str | None = "bfloat16",
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        super().__init__(**settings(locals()), qk_clip=None, largest=None)

    def check(self, group: dict) -> None:
        """Require sound settings of a group, and heads that divide the rows."""
        super().check(group)
        check.number(self, "bound", group["bound"], 0.0, open_low=True)
        check.number(self, "balance", group["balance"], 0.0, 1.0)
        check.choice(self, "qk_clip", group.get("qk_clip"), (None, *ROLES))
        if clips(group):
            for p in tensors(group["params"]):
                self.gammas(p, group)

    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Look at the scores that have been set, before anything moves."""
        for _, group in work:
            self.check(group)

    def orthogonal(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> list[Tensor]:
        """Move the momentum, and return the directions."""
        us = self.summed(params, grads, states, {**group, "nesterov": False})
        return self.directions(us, lambda x: self.direction(x, group), group)

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices, then shrink the rows of heads."""
        super().move(params, grads, states, group)
        for p in params if clips(group) else ():
            factors = self.gammas(p, group).repeat_interleave(p.shape[0] // len(group["largest"]))
            local(p).mul_(part_of(factors.view(-1, *[1] * (p.dim() - 1)).expand(p.shape), p))

    def gammas(self, p: Tensor, group: dict) -> Tensor:
        """What the rows of each head are multiplied by."""
        dtype = accurate(p.new_empty(0)).dtype
        largest = torch.as_tensor(group["largest"], dtype=dtype, device=p.device).detach()
        if largest.dim() != 1 or not len(largest) or p.shape[0] % len(largest) or not (largest < torch.inf).all():
            raise ValueError(
                f"{type(self).__name__}: largest must be a number for each head, which divide {p.shape[0]} rows, "
                f"not {group['largest']}"
            )
        power = {"query": group["balance"], "key": 1 - group["balance"], "query_rotary": 1.0}[group["qk_clip"]]
        return torch.where(largest > group["bound"], group["bound"] / largest, 1.0) ** power


def clips(group: dict) -> bool:
    """Whether the matrices of a group are clipped."""
    return group.get("qk_clip") not in (None, "key_rotary") and group.get("largest") is not None
