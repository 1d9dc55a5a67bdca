"""BHyT, bounded hyperbolic tanh: an RMSNorm inside a tanh."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "bhyt",
    paper="Bounded Hyperbolic Tangent: A Stable and Efficient Alternative to Pre-Layer Normalization in Large "
    "Language Models (Byun et al., 2026), arXiv 2601.09719",
    shape="... C",
    over="C",
    inputs={"variance?": "... 1 : unit"},
    replaces=("rmsnorm", "layernorm"),
    aliases=("bounded-hyperbolic-tangent", "bounded-hyperbolic-tanh"),
)
class BHyT(Norm):
    """Divide each vector by its root mean square, scale it so that few entries are large, and squash it with a tanh.

    For language models, in the place of the norms before sublayers. Where no statistic at all is wanted, take ``dyt``.

    Over the last axis, v the mean of x² or a given variance,

        y = weight * tanh(bound * inverse_kappa * x / sqrt(v + eps))

    No mean is subtracted. At the defaults the argument is near 0.2 x / rms, almost linear, and y about 0.2 times an
    RMSNorm's; by Chebyshev's bound no more than inverse_kappa² of the entries have an argument above ``bound``.

    Args:
        dim: size of the last axis.
        bound: where the one learned number ``bound`` (1,) starts.
        inverse_kappa: 1 / kappa, so that inverse_kappa² is that share of entries.
        eps: added to v under the root.

    ``norm(x)``, or ``norm(x, variance)`` with variance (..., 1), as ``bhyt-variance`` predicts it for the second norm
    of a block.

    Bounded Hyperbolic Tangent: A Stable and Efficient Alternative to Pre-Layer Normalization in Large Language Models
    (ICML 2026), arXiv 2601.09719.

    Differs from the paper in: its formula has the mean's size under the fraction as well; the authors' code, as here,
    has the second moment alone. From the authors' code in: half precision is rounded once, at the end.
    """

    def __init__(self, dim: int, *, bound: float = 2.0, inverse_kappa: float = 0.1, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.inverse_kappa = check.number(self, "inverse_kappa", inverse_kappa, 0.0, check.LARGEST, open_low=True)
        self.rule = ops.Row(eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bound = nn.Parameter(
            torch.full((1,), check.number(self, "bound", bound, 0.0, check.LARGEST, open_low=True))
        )

    @property
    def eps(self) -> float:
        """The stabilizer."""
        return self.rule.eps

    def forward(self, x: Tensor, variance: Tensor | None = None) -> Tensor:
        """Squash ``x``, whose last axis has ``dim`` entries, by its own second moment or by ``variance``."""
        check.features_last(self, x, self.dim)
        z = accurate(x)
        if variance is None:
            n = ops.row_norm(z, rule=self.rule)
        else:
            check.values(self, "variance", variance, (*x.shape[:-1], 1), x)
            n = z * torch.rsqrt(variance.to(z.dtype) + self.eps)
        return ops.dyt(n, accurate(self.bound) * self.inverse_kappa, self.weight, owner=self).to(x.dtype)
