"""Motion-aware layer normalization: gain and shift from the motion between frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.conditional._map import run
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "motion-layernorm",
    paper="Exploring Object-Centric Temporal Modeling for Efficient Multi-View 3D Object Detection "
    "(Wang et al., 2023), arXiv 2303.11926",
    shape="... C",
    over="C",
    inputs={"condition": "... condition_features"},
    example={"condition_features": 6},
    invariant=("shift", "scale"),
    exempt={"batches": "the order of sums in a linear layer's product follows the number of its rows"},
)
class MotionLayerNorm(Norm):
    """Give each vector zero mean and unit variance, then a gain and a shift made from a condition.

    For queries that are carried from frame to frame: the condition encodes ego motion, velocity and the time gap. With
    h the layer norm of x without gain and shift, or x itself with ``normalize=False``, and e = relu(reduce(condition)),
    (..., C),

        y = gamma(e) * h + beta(e)

    ``reduce``, ``gamma`` and ``beta`` are linear layers; ``gamma`` starts as the constant 1 and ``beta`` as 0, so that
    the module starts as a plain layer norm.

    Args:
        dim: C.
        condition_features: size of the condition's last axis.
        normalize: apply the layer norm.
        eps: added to the biased variance under the root.

    Input x ``(..., C)`` and condition ``(..., condition_features)``, whose leading axes broadcast with those of x.

    Exploring Object-Centric Temporal Modeling for Efficient Multi-View 3D Object Detection (Wang et al., 2023),
    arXiv 2303.11926.
    """

    def __init__(self, dim: int, *, condition_features: int, normalize: bool = True, eps: float = 1e-5):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.normalize = bool(normalize)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.reduce = nn.Linear(condition_features, dim)
        self.gamma = constant(dim, 1.0)
        self.beta = constant(dim, 0.0)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``condition``."""
        check.features_last(self, x, self.dim)
        self._check_condition(x, condition)
        exact = statistics.accurate(x)
        h = ops.row_norm(exact, rule=self.rule) if self.normalize else exact
        e = torch.relu(run(self.reduce, condition))
        return (run(self.gamma, e).to(h.dtype) * h + run(self.beta, e).to(h.dtype)).to(x.dtype)

    def _check_condition(self, x: Tensor, condition: Tensor) -> None:
        check.features_last(self, condition, self.condition_features, "condition")
        check.shape(self, "condition", condition, (None,) * condition.dim(), x)
        pairs = zip(reversed(x.shape[:-1]), reversed(condition.shape[:-1]), strict=False)
        if any(a != b and a != 1 and b != 1 for a, b in pairs):
            raise ValueError(
                f"MotionLayerNorm: the leading axes of condition must broadcast with those of x, but the shapes are "
                f"{tuple(condition.shape)} and {tuple(x.shape)}"
            )


def constant(width: int, value: float) -> nn.Linear:
    """A linear layer that starts as the same value for every input."""
    layer = nn.Linear(width, width)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, value)
    return layer
