"""What acts while a language model generates: sampling under a constraint."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normkit import check
from normkit.inference.adaptive_weighted_rejection_sampling import sample


class RejectionSampling:
    """A logits processor of ``transformers``: each token is drawn by adaptive weighted rejection sampling.

    >>> processor = RejectionSampling(lambda ids, token: token == 2)
    >>> processor(torch.tensor([[1, 2]]), torch.tensor([[0.0, 1.0, 2.0, 9.0]]))
    tensor([[-inf, -inf, 0., -inf]])

    ``generate(..., logits_processor=[processor], do_sample=True)`` then takes the token that was drawn, as it alone is
    left. It belongs last, behind temperature and the like.

    Args:
        accept: called with the tokens so far, int64 (T,), and a token; tells whether the constraint allows it.
        max_rejects: after so many rejected tokens the last one is taken, with a weight of 0; None: no bound.
        generator: draws the noise.

    ``log_weight`` (B,) sums up the logarithms of the weights of each text since :meth:`reset`, and ``calls`` counts how
    often the constraint was asked: resampling texts by the weights makes the texts exact.
    """

    def __init__(
        self,
        accept: Callable[[Tensor, int], bool],
        *,
        max_rejects: int | None = None,
        generator: torch.Generator | None = None,
    ):
        self.accept, self.generator = accept, generator
        self.max_rejects = None if max_rejects is None else check.size(self, "max_rejects", max_rejects)
        self.reset()

    def reset(self) -> None:
        """Begin new texts."""
        self.log_weight: Tensor | None = None
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (B, V) of which one a row is not -inf."""
        check.floating(self, scores, "scores")
        tokens, weights = [], []
        for ids, row in zip(input_ids, torch.log_softmax(scores.float(), -1), strict=True):
            token, weight, calls = sample(
                row, lambda token, ids=ids: self.accept(ids, token), self.generator, max_rejects=self.max_rejects
            )
            tokens.append(token)
            weights.append(weight)
            self.calls += calls
        added = torch.tensor(weights, device=scores.device)
        self.log_weight = added if self.log_weight is None else self.log_weight + added
        chosen = torch.tensor(tokens, device=scores.device).unsqueeze(1)
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)
