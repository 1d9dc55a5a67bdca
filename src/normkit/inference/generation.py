"""What acts while a language model generates: sampling under a constraint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        eos_token_id: the token or tokens that end a text, as in ``generate``. From then on its scores stay as they are,
            and the constraint is not asked. None: no text ends.
        generator: draws the noise.

    ``log_weight`` (B,) sums up the logarithms of the weights of each text since :meth:`reset`, and ``calls`` counts how
    often the constraint was asked: resampling texts by the weights makes the texts exact.
    """

    def __init__(
        self,
        accept: Callable[[Tensor, int], bool],
        *,
        max_rejects: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ):
        self.accept, self.generator = accept, generator
        self.max_rejects = None if max_rejects is None else check.size(self, "max_rejects", max_rejects)
        ends = () if eos_token_id is None else eos_token_id if isinstance(eos_token_id, Sequence) else (eos_token_id,)
        self.eos_token_id = tuple(check.size(self, "eos_token_id", token, least=0) for token in ends)
        self.reset()

    def reset(self) -> None:
        """Begin new texts."""
        self.log_weight: Tensor | None = None
        self.calls = 0
        self._ended: set[int] = set()  # generate goes on asking for the scores of these rows

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (B, V) of which one a row is not -inf, but for texts that have ended."""
        check.floating(self, scores, "scores")
        added, drawn = scores.new_zeros(len(scores), dtype=torch.float32), scores.clone()
        for row, (ids, logs) in enumerate(zip(input_ids, torch.log_softmax(scores.float(), -1), strict=True)):
            if row in self._ended:
                continue
            token, added[row], calls = sample(
                logs, lambda token, ids=ids: self.accept(ids, token), self.generator, max_rejects=self.max_rejects
            )
            drawn[row], drawn[row, token] = -torch.inf, 0.0
            self.calls += calls
            if token in self.eos_token_id:
                self._ended.add(row)
        self.log_weight = added if self.log_weight is None else self.log_weight + added
        return drawn
