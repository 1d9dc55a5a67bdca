"""The loss of a marginalization model that learns an energy: reverse KL, with marginals that agree."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import reals

EPS = 1.1920928955078125e-07  # the authors' float32 rounding, added to the deviation
SCORE = "the gradient is the score function's, not the loss'"
PAIR = "a reward is standardized over at least two samples"


@method(
    "mam-energy-loss",
    paper="Generative Marginalization Models (Liu et al., 2024), arXiv 2310.12920",
    shape="B",
    over="B",
    inputs={"energy": "B", "consistency": "", "start": ""},
    exempt={
        "gradcheck": SCORE,
        "higher-derivatives": SCORE,
        "empty": PAIR,
        "one": PAIR,
        "compile batches train": "torch starts the first trace over where a single float64 number comes in",
    },
)
class MAMEnergyLoss(Loss):
    """Lower the energy of a model's own samples, and hold its marginals to each other.

    For a target that is known by an energy alone, at sizes where an autoregressive model's samples cost too much. Where
    there are data, take ``marginal-consistency`` beside their likelihood.

    On samples of the model, with r = log_p + energy, which carries no gradient,

        alpha (length consistency + start) + mean((r - mean r) / (std r + 1.2e-7) log_p)

    Args:
        length: L, how many values a sample has.
        alpha: the weight of what holds marginals to each other.

    ``loss(log_p, energy, consistency, start)``: the log marginals and energies of B >= 2 samples, (B,);
    :func:`marginal_consistency`, and (log marginal of nothing known - log Z)^2, single numbers. The deviation is
    unbiased.

    Generative Marginalization Models (Liu et al., 2024), arXiv 2310.12920.
    """

    def __init__(self, length: int, *, alpha: float = 1.0):
        super().__init__()
        self.length = check.size(self, "length", length)
        self.alpha = check.number(self, "alpha", alpha, 0.0)

    def forward(self, log_p: Tensor, energy: Tensor, consistency: Tensor, start: Tensor) -> Tensor:
        """Return the loss, a single number."""
        own = reals(self, "log_p", log_p, (None,))
        if len(log_p) < 2:
            raise ValueError(f"{type(self).__name__}: log_p must be of at least two samples, not {len(log_p)}")
        reward = own.detach() + reals(self, "energy", energy, log_p.shape, log_p).detach()
        off = reward - reward.mean()
        near = own - own.detach().mean()  # which changes nothing but rounding, as the rewards sum to 0
        held = self.length * reals(self, "consistency", consistency, (), log_p) + reals(self, "start", start, (), log_p)
        return (self.alpha * held + (off / (off.std() + EPS) * near).mean()).to(log_p.dtype)
