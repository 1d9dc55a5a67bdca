"""Attention trained under the perturbation of its scores that hurts it most."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate

FLOOR = 1e-12  # of a gradient's length
SUM_EPS = 1e-13


@method(
    "adversarial-attention",
    paper="Attention Meets Perturbations: Robust and Interpretable Attention with Adversarial Training "
    "(Kitada, Iyatomi, 2020), arXiv 2009.12064",
    shape="N T C",
    over="T",
    inputs={"mask": "N T : bool"},
)
class AdversarialAttention(Method):
    """Weigh the tokens of a text by an additive score, and in training also under an attack on these scores.

    For text classification over a recurrent network. Where a transformer reads the text, its own attention does this
    work.

    With a = score(tanh(hidden(h))), a token that is not seen having the score 0,

        attention = r / (sum of r + 1e-13),      r = softmax(a * mask) * mask
        perturbed: the same of a + epsilon * g / max(||g||, 1e-12), the length over a text's tokens

    A step of training takes the loss L of the clean attention, its gradient g at the scores, the loss L_adv of
    ``perturbed(hidden, mask, g)``, and descends on L + L_adv. No gradient flows through the perturbation.

    Args:
        dim: features of a token.
        epsilon: length of the perturbation.
        variant: ``"at"``, along the gradient, or ``"iat"`` as published, against it: the differences of words that are
            the paper's idea never reach the perturbation in the authors' code, and what is left rewards the attention.

    ``module(hidden, mask)``: (N, T, dim) and boolean (N, T) -> attention (N, T). ``perturbed(hidden, mask, gradient)``:
    gradient (N, T) -> attention. Evaluation uses the clean one.

    Attention Meets Perturbations: Robust and Interpretable Attention with Adversarial Training (Kitada, Iyatomi, 2020),
    arXiv 2009.12064.
    """

    def __init__(self, dim: int, *, epsilon: float = 1.0, variant: str = "at"):
        super().__init__()
        self.dim = check.size(self, "dim", dim, 2)
        self.epsilon = check.eps(self, epsilon, "epsilon")
        self.variant = check.choice(self, "variant", variant, ("at", "iat"))
        self.hidden = Linear(dim, dim // 2)
        self.score = Linear(dim // 2, 1, bias=False)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the clean attention."""
        return _masked_softmax(self.scores(hidden, mask), mask).to(hidden.dtype)

    def perturbed(self, hidden: Tensor, mask: Tensor, gradient: Tensor) -> Tensor:
        """Return the attention under the perturbation that ``gradient``, the loss's at the scores, gives."""
        scores = self.scores(hidden, mask)
        check.values(self, "gradient", gradient, mask.shape, hidden)
        g = accurate(gradient).detach().to(scores.dtype)
        step = g / torch.linalg.vector_norm(g, dim=-1, keepdim=True).clamp(min=FLOOR)
        sign = 1 if self.variant == "at" else -1
        return _masked_softmax(scores + sign * self.epsilon * step, mask).to(hidden.dtype)

    def scores(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """The scores (N, T) of all tokens, before the softmax."""
        check.values(self, "hidden", hidden, (None, None, self.dim), hidden)
        check.mask(self, "mask", mask, hidden.shape[:2], hidden)
        scores = self.score(torch.tanh(self.hidden(accurate(hidden))))
        return accurate(scores.squeeze(-1))  # of half precision under autocast


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax in which a hidden token has the score 0, and then no share."""
    share = torch.where(mask, torch.softmax(torch.where(mask, scores, 0), -1), 0)
    return share / (share.sum(-1, keepdim=True) + SUM_EPS)
