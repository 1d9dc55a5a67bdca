"""Answer choices scored by a language model, and normalized for what a choice is worth anywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import beside

MODES = ("none", "pmi", "length", "softmax")
NAME = "answer-choice-normalization"


@method(
    NAME,
    paper="Attentiveness to Answer Choices Doesn't Always Entail High QA Accuracy (Wiegreffe et al., 2023), "
    "arXiv 2305.14596",
    evidence="equations",
    shape="N G",
    over="G",
    inputs={"against": "N G"},
    example={"mode": "pmi"},
)
def answer_choice_normalization(log_probs: Tensor, against: Tensor | None = None, *, mode: str = "none") -> Tensor:
    """Score each answer choice by its log-probability, less what it has without the question, by its length, or shared.

    For multiple choice with a language model: a common phrase is probable whatever is asked.

        none    log p(y | x)
        pmi     log p(y | x) - log p(y | a domain's prompt)
        length  log p(y | x) / length of y, in tokens or bytes
        softmax log p(y | x) - log sum over choices p(y | x), which changes no prediction

    The prediction is the largest. Where choices hold nearly all of the probability (``attentiveness``), they cannot
    compete with other words for the same thing, and pmi is found to hurt.

    Args:
        log_probs: of C choices, (N, C).
        against: for pmi the log-probabilities without the question, for length the lengths, (N, C) both; else None.
        mode: which of the four.

    Beside it: ``attentiveness(log_probs)`` is the probability of all choices together, (N,).

    Attentiveness to Answer Choices (Wiegreffe et al., 2023), arXiv 2305.14596.
    """
    wide = scores(NAME, "log_probs", log_probs, (None, None))
    check.choice(NAME, "mode", mode, MODES)
    if (against is not None) != (mode in ("pmi", "length")):
        raise ValueError(f"{NAME}: against is wanted for mode 'pmi' and 'length' alone; mode is {mode!r}")
    if against is not None and mode == "pmi":
        return (wide - scores(NAME, "against", against, log_probs.shape, log_probs)).to(log_probs.dtype)
    if against is not None:
        return (wide / _lengths(against, log_probs)).to(log_probs.dtype)
    if mode == "softmax":
        wide = wide - torch.logsumexp(wide, 1, keepdim=True)
    return wide.to(log_probs.dtype)


def _lengths(lengths: Tensor, like: Tensor) -> Tensor:
    check.shape(NAME, "against", lengths, like.shape, like)
    if check.readable(lengths) and not (lengths > 0).all():
        raise ValueError(f"{NAME}: against must hold lengths above 0")
    return lengths


@beside(answer_choice_normalization)
def attentiveness(log_probs: Tensor) -> Tensor:
    """Return the probability (N,) of all choices together, of log-probabilities (N, C)."""
    return torch.logsumexp(scores(NAME, "log_probs", log_probs, (None, None)), 1).exp().to(log_probs.dtype)
