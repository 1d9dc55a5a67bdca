"""FiLM: channels scaled and shifted by a condition, and nothing normalized."""

from __future__ import annotations

from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.conditional._map import run
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "film",
    paper="FiLM: Visual Reasoning with a General Conditioning Layer (Perez et al., 2017), arXiv 1709.07871",
    evidence="equations",
    shape="N C *",
    inputs={"condition": "N condition_features"},
    example={"condition_features": 6},
    aliases=("feature-wise-linear-modulation",),
    provenance="equations in float64 in tests/activation/test_conditional_neighbours.py",
    exempt={"batches rows": "the order of sums in a linear layer's product follows the number of its rows"},
)
class FiLM(Norm):
    """Scale and shift each channel by numbers made from the sample's condition.

    For a condition, such as a question or a time step, that is to steer a layer without a norm, or with a norm of your
    choice in front. Where norm and condition belong together, take ``adaptive-layernorm``, ``adaptive-groupnorm`` or
    ``conditional-batchnorm``.

    In the paper it follows a batch norm without gain and shift.

        [scale, shift] = modulation(condition),        y = (1 + scale) * x + shift

    Args:
        num_features: C.
        condition_features: size of the condition, C by default.

    Input x ``(N, C)`` or ``(N, C, *space)`` and condition ``(N, condition_features)``.

    FiLM: Visual Reasoning with a General Conditioning Layer (Perez et al., 2017), arXiv 1709.07871.
    """

    def __init__(self, num_features: int, *, condition_features: int | None = None):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        condition_features = num_features if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.modulation = nn.Linear(condition_features, 2 * num_features)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Modulate ``x`` with ``condition``."""
        check.channels_first(self, x, self.num_features)
        check.values(self, "condition", condition, (x.shape[0], self.condition_features), x)
        exact = statistics.accurate(x)
        scale, shift = run(self.modulation, condition).to(exact.dtype).chunk(2, dim=-1)
        return ops.affine(exact, 1 + scale, shift).to(x.dtype)
