"""Adaptive weighted rejection sampling: a token that keeps to a constraint, asking the constraint seldom."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import beside

NAME = "adaptive-weighted-rejection-sampling"
FULL = 1 - 1e-5  # a rejected mass after which nothing is left


class Sampled(NamedTuple):
    """The token, and the logarithm of its weight."""

    token: Tensor
    log_weight: Tensor


@method(
    NAME,
    paper="Fast Controlled Generation from Language Models with Adaptive Weighted Rejection Sampling (Lipkin et al., "
    "2025), arXiv 2504.05410",
    shape="C",
    over="C",
    inputs={"accept": "C : mask", "gumbel": "C"},
    aliases={"awrs": {}},
)
@torch.no_grad()
def adaptive_weighted_rejection_sampling(
    log_probs: Tensor, accept: Tensor, gumbel: Tensor, *, max_rejects: int | None = None
) -> Sampled:
    """Draw tokens without replacement until one is accepted, and weight it so that the mass accepted is estimated.

    For generation under a constraint that is costly to ask: a few calls a token instead of one for each word of the
    vocabulary, and weights that make a particle filter exact. Where the constraint is cheap, mask the whole vocabulary
    instead.

    Tokens come in the order of log_probs + gumbel. A token v has, given that those before it were rejected with the
    mass R, log-probability q = log p(v) - log(1 - R). Each rejected one multiplies the weight by 1 - exp(q), and where
    after the accepted one also the next is rejected, the weight gets exp(q) of the accepted one: exp(log_weight) is
    then an unbiased estimate of the mass of all accepted tokens.

    Args:
        log_probs: of the tokens, (V,), normalized. Normalize others before the call, and add their log-normalizer to
            the weight.
        accept: 1 for tokens that are allowed, (V,), numbers or boolean.
        gumbel: standard Gumbel noise, (V,).
        max_rejects: after so many rejected tokens the last one is returned; None: no bound.

    Returns ``token`` and ``log_weight``; -inf for a token that was rejected. Beside it: ``sample(log_probs, accept_fn,
    generator=None)`` draws the noise, asks ``accept_fn(token)`` only for the tokens that come up, and returns how often
    it did as well.

    Fast Controlled Generation (Lipkin et al., 2025), arXiv 2504.05410.
    """
    known = scores(NAME, "log_probs", log_probs, (None,))
    check.shape(NAME, "accept", accept, log_probs.shape, log_probs)
    noise = scores(NAME, "gumbel", gumbel, log_probs.shape, log_probs)
    allowed = accept.bool().tolist()
    token, log_weight = _walk(known, known + noise, allowed.__getitem__, max_rejects)
    return Sampled(torch.tensor(token, device=log_probs.device), log_probs.new_tensor(log_weight))


@beside(adaptive_weighted_rejection_sampling)
@torch.no_grad()
def sample(
    log_probs: Tensor,
    accept_fn: Callable[[int], bool],
    generator: torch.Generator | None = None,
    *,
    max_rejects: int | None = None,
) -> tuple[int, float, int]:
    """Draw a token of log-probabilities (V,) that ``accept_fn`` allows: token, log-weight, number of calls."""
    known = scores(NAME, "log_probs", log_probs, (None,))
    uniform = torch.rand(known.shape, generator=generator, dtype=torch.float64, device=known.device)
    asked: dict[int, bool] = {}

    def allowed(token: int) -> bool:
        if token not in asked:
            asked[token] = bool(accept_fn(token))
        return asked[token]

    token, log_weight = _walk(known, known - (-uniform.log()).log(), allowed, max_rejects)
    return token, log_weight, len(asked)


def _walk(known: Tensor, keys: Tensor, allowed: Callable[[int], bool], max_rejects: int | None) -> tuple[int, float]:
    """Go along the tokens in the order of their keys until one is accepted: it, and its log-weight."""
    most = math.inf if max_rejects is None else check.size(NAME, "max_rejects", max_rejects)
    order = keys.argsort(descending=True, stable=True)
    order = order[known[order] > -math.inf]
    if not len(order):
        raise ValueError(f"{NAME}: log_probs must have a token that is possible")
    tokens, logs = order.tolist(), known[order].double().tolist()
    rejected, weight = 0.0, 0.0
    for place, (token, log_p) in enumerate(zip(tokens, logs, strict=True)):
        last = place == len(tokens) - 1
        q = 0.0 if last else min(log_p - math.log1p(-rejected), 0.0)
        final = last or place == most - 1
        if allowed(token):
            return token, weight if final or allowed(tokens[place + 1]) else weight + q
        rejected += math.exp(log_p)
        if final or rejected >= FULL:
            break
        weight += _log_one_less(q)
    return token, -math.inf


def _log_one_less(q: float) -> float:
    """log(1 - exp(q)) for q <= 0, without losing digits on either side."""
    if q == 0:
        return -math.inf
    return math.log(-math.expm1(q)) if q > -math.log(2) else math.log1p(-math.exp(q))
