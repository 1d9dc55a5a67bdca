"""The variance that BHyT predicts for the second norm of a block."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate

CONSTANT = "the authors let no gradient pass through bound and the weights"


@method(
    "bhyt-variance",
    paper="Bounded Hyperbolic Tangent: A Stable and Efficient Alternative to Pre-Layer Normalization in Large Language "
    "Models (Byun et al., 2026), arXiv 2601.09719",
    shape="... C",
    over="C",
    inputs={"value_weight": "C C", "output_weight": "C C", "bound": "1 : unit", "weight": "C"},
    example={"sequence_length": 16, "heads": 2, "key_value_heads": 2},
    exempt={"gradcheck": CONSTANT, "half": "squares of float16 overflow, so both variances stay in float32"},
)
class BHyTVariance(Norm):
    """Take the mean square of each vector, and predict from an attention's weights what it will be behind it.

    For blocks that normalize by ``bhyt`` and would measure the stream twice: the second variance is predicted from the
    first and the weights. Where it must be exact, let ``bhyt`` measure its own input.

    With W_v and W_o as linear layers store them, the rows of W_v repeated for the query heads that share them,

        c = ||W_o W_v||² / (sequence_length * dim)
        variance = mean(x²),        predicted = variance + c * (bound * inverse_kappa)² [* mean(weight²)]

    Args:
        sequence_length: the length that the model is set up for, not that of the input.
        heads: of the queries.
        key_value_heads: of keys and values, a divisor of ``heads``.
        inverse_kappa: 1 / kappa, that of the first norm.
        gain: take the mean of the first norm's ``weight``² in.

    ``norm(x, value_weight, output_weight, bound, weight)``: x (..., dim), the weights of the attention, and
    ``bound`` and ``weight`` of the BHyT in front of it -> (variance, predicted), both (..., 1). Only x gets a gradient.
    c changes with the weights alone: :meth:`factor` gives it, and :meth:`predict` takes it, so that it is worked out
    once.

    Bounded Hyperbolic Tangent: A Stable and Efficient Alternative to Pre-Layer Normalization in Large Language Models
    (ICML 2026), arXiv 2601.09719.
    """

    def __init__(
        self,
        *,
        sequence_length: int,
        heads: int,
        key_value_heads: int,
        inverse_kappa: float = 0.1,
        gain: bool = False,
    ):
        super().__init__()
        self.sequence_length = check.size(self, "sequence_length", sequence_length)
        self.heads = check.size(self, "heads", heads)
        self.key_value_heads = check.size(self, "key_value_heads", key_value_heads)
        check.divides(self, "key_value_heads", key_value_heads, "heads", heads)
        self.inverse_kappa = check.number(self, "inverse_kappa", inverse_kappa, 0.0, check.LARGEST, open_low=True)
        self.gain = bool(gain)

    def forward(
        self, x: Tensor, value_weight: Tensor, output_weight: Tensor, bound: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the variance of ``x`` and the one predicted behind the attention."""
        check.features_last(self, x, x.shape[-1] if isinstance(x, Tensor) and x.dim() else 1)
        check.values(self, "value_weight", value_weight, (None, x.shape[-1]), x)
        check.values(self, "output_weight", output_weight, (x.shape[-1], None), x)
        return self.predict(x, self.factor(value_weight, output_weight), bound, weight)

    @torch.no_grad()
    def factor(self, value_weight: Tensor, output_weight: Tensor) -> Tensor:
        """c, a single number, from the weights of an attention."""
        check.values(self, "value_weight", value_weight, (None, None), value_weight)
        dim, rows = value_weight.shape[1], value_weight.shape[0]
        check.divides(self, "key_value_heads", self.key_value_heads, "rows of value_weight", rows)
        share = self.heads // self.key_value_heads
        check.values(self, "output_weight", output_weight, (dim, rows * share), value_weight)
        shape = (dim, self.key_value_heads, share, rows // self.key_value_heads)
        joined = accurate(output_weight).reshape(shape).sum(2).flatten(1)  # heads that read the same values
        product = joined @ accurate(value_weight).to(joined.dtype)
        return product.square().sum() / (self.sequence_length * dim)

    def predict(self, x: Tensor, factor: Tensor, bound: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the variance of ``x`` and the predicted one, with :meth:`factor` at hand."""
        check.floating(self, x)
        for name, value in (("factor", factor), ("bound", bound)):
            single = isinstance(value, Tensor) and value.numel() == 1
            check.values(self, name, value, value.shape if single else (1,), x)
        check.values(self, "weight", weight, x.shape[-1:], x)
        z = accurate(x)
        variance = z.square().mean(-1, keepdim=True)
        c, alpha = (value.detach().to(z.dtype).reshape(()) for value in (factor, bound))
        added = c * (alpha * self.inverse_kappa).square()
        if self.gain:
            added = added * weight.detach().to(z.dtype).square().mean()
        return variance, variance + added
