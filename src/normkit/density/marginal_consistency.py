"""Marginalization models: a marginal and the conditional below it must agree."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import beside
from normkit.statistics import reals

NAME = "marginal-consistency"


class Contexts(NamedTuple):
    """What is known after ``index`` positions and after one less; 0 is unknown."""

    masked: Tensor
    masked_previous: Tensor


@method(
    NAME,
    paper="Generative Marginalization Models (Liu et al., 2024), arXiv 2310.12920",
    shape="B L : permutation",
    inputs={
        "index": "B : index 1 5",
        "x": "B L : index 1 4",
        "log_p": "B",
        "log_p_previous": "B",
        "logits": "B L K",
    },
)
def marginal_consistency(
    order: Tensor, index: Tensor, x: Tensor, log_p: Tensor, log_p_previous: Tensor, logits: Tensor
) -> Tensor:
    """Compare the log marginal of one more known value with that of one less and the conditional between them.

    For discrete data of which marginals over any known values are asked: one network gives them in one pass, where an
    autoregressive one needs a pass for each. They are right only as far as this loss is small. For a target known by
    its energy ``mam-energy-loss`` comes beside it.

    With p the position of rank index - 1,

        mean over B of (log_p - log_p_previous - log_softmax(logits[p])[x_p - 1])^2

    Args:
        order: the rank of each position, int64, a permutation of 0 ... L - 1 in each row, (B, L).
        index: how many values are known, 1 ... L, int64, (B,).
        x: the values, 1 ... K, as whole numbers of any type, (B, L); logits have no place for 0, which is unknown.
        log_p, log_p_previous: the network's log marginals of both contexts, (B,).
        logits: its conditionals in the previous context, (B, L, K).

    ``contexts(order, index, x)`` beside it returns both contexts.

    Generative Marginalization Models (Liu et al., 2024), arXiv 2310.12920.
    """
    values = _values(order, index, x)
    rows = x.shape[:1]
    score = reals(NAME, "logits", logits, (*x.shape, None))
    kinds = score.shape[2]
    now, before = (
        reals(NAME, key, v, rows, logits) for key, v in (("log_p", log_p), ("log_p_previous", log_p_previous))
    )
    at = (order == (index - 1).unsqueeze(1)).to(torch.uint8).argmax(1, keepdim=True)
    value = values.gather(1, at).squeeze(1).long() - 1
    check.index(NAME, "x less 1", value, rows, kinds, logits)
    row_logits = score.gather(1, at.unsqueeze(2).expand(-1, 1, kinds)).squeeze(1)
    step = torch.log_softmax(row_logits, 1).gather(1, value.unsqueeze(1)).squeeze(1)
    return (now - before - step).square().mean().to(logits.dtype)


@beside(marginal_consistency)
def contexts(order: Tensor, index: Tensor, x: Tensor) -> Contexts:
    """Return what is known after ``index`` positions in the given order, and after one less; 0 elsewhere."""
    _values(order, index, x)
    known = index.unsqueeze(1)
    return Contexts(torch.where(order < known, x, 0), torch.where(order < known - 1, x, 0))


def _values(order: Tensor, index: Tensor, x: Tensor) -> Tensor:
    check.shape(NAME, "order", order, (None, None))
    check.index(NAME, "order", order, order.shape, order.shape[1], order)
    check.shape(NAME, "index", index, order.shape[:1], order)
    if index.dtype is not torch.int64:  # torch takes 1 from no truth
        raise TypeError(f"{NAME}: index must be an int64 tensor, not {index.dtype}")
    check.index(NAME, "index less 1", index - 1, order.shape[:1], order.shape[1], order)
    check.shape(NAME, "x", x, order.shape, order)
    if x.is_complex():
        raise TypeError(f"{NAME}: x must hold whole numbers, not {x.dtype}")
    return x
