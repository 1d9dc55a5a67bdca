"""ELN, elementwise layer normalization: RMSNorm with its entries decoupled."""

from __future__ import annotations

from torch import Tensor

from normkit import ops
from normkit.activation.token._pointwise import PointwiseNorm, scalar
from normkit.catalog import method


@method(
    "eln",
    paper="Elementwise Layer Normalization (Stollenwerk, 2025), arXiv 2503.21708",
    evidence="equations",
    shape="... C",
    over="",
    replaces=("layernorm", "rmsnorm", "dyt"),
    provenance="where beta starts is this project's choice: dim gives slope 1 at 0 for inputs of unit variance",
)
class ELN(PointwiseNorm):
    """Squash every entry as RMSNorm would if the other entries did not change.

    For transformers, in the place of LayerNorm or RMSNorm; closer to them than DyT, above all on outliers. ``dyt`` is
    the simpler map.

    In RMSNorm let one entry vary: with beta the sum of the squares of the others the map is exactly the one below; here
    beta is learned.

        y = sqrt(dim) * x / sqrt(beta + x²) * weight + bias

    Args:
        dim: number of features.
        beta: where the layer's one beta starts; None means at ``dim``. It must stay above 0, which is not enforced.
        bias: learn a shift a feature.

    Elementwise Layer Normalization (Stollenwerk, 2025), arXiv 2503.21708; called DyISRU in a later version.

    Where beta starts is this project's choice: ``dim`` gives slope 1 at 0 for inputs of unit variance.
    """

    def __init__(self, dim: int, *, beta: float | None = None, bias: bool = True):
        super().__init__(dim, bias=bias)
        self.beta = scalar(self, "beta", float(dim) if beta is None else beta)

    def forward(self, x: Tensor) -> Tensor:
        """Squash ``x``."""
        return ops.eln(x, self.beta, self.weight, self.bias, owner=self)
