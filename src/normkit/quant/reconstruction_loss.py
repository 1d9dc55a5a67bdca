"""The reconstruction loss of learned rounding: how far a quantized layer is from the float one."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.quant._rounding import PAPER, PROVENANCE
from normkit.statistics import accurate

MODES = ("mse", "fisher-diag", "fisher-full")


@method(
    "reconstruction-loss",
    paper=PAPER,
    evidence="library",
    shape="N C *",
    over="C",
    inputs={"target": "N C *"},
    provenance=PROVENANCE,
)
class ReconstructionLoss(Loss):
    """Compare the outputs of a quantized layer with those of the float one, perhaps weighted by a task's gradient.

    For setting the rounding layer by layer, without labels. With e = |y - target|, g the gradient of the task's loss
    at the float outputs, sums over channels, axis 1, and means over all else,

        mse          mean sum e^power
        fisher-diag  mean sum e² g²
        fisher-full  mean over all (s e |g|) / 100,    s = sum over a sample of e |g|

    Args:
        mode: which of the three.
        power: of the error, for ``"mse"``.

    ``loss(y, target)`` or, for the two that are weighted, ``loss(y, target, gradient)``; all (N, C, ...), and four axes
    for ``"fisher-full"``.

    Gradient-Based Post-Training Quantization: Challenging the Status Quo (Yvinec, Dapogny, Bailly, 2023), arXiv
    2308.07662.
    """

    def __init__(self, *, mode: str = "mse", power: float = 2.0):
        super().__init__()
        self.mode = check.choice(self, "mode", mode, MODES)
        self.power = check.number(self, "power", power, 1.0)

    def forward(self, y: Tensor, target: Tensor, gradient: Tensor | None = None) -> Tensor:
        """Return the loss, a single number."""
        check.floating(self, y, "y")
        if y.dim() < 2 or (self.mode == "fisher-full" and y.dim() != 4):
            expected = "four axes" if self.mode == "fisher-full" else "channels on axis 1"
            raise ValueError(f"{type(self).__name__}: y must have {expected}, but its shape is {tuple(y.shape)}")
        check.values(self, "target", target, y.shape, y)
        error = (accurate(y) - accurate(target)).abs()
        if self.mode == "mse":
            return (error**self.power).sum(1).mean().to(y.dtype)
        if gradient is None:
            raise TypeError(f"{type(self).__name__}: mode={self.mode!r} needs the gradient, the third input")
        check.values(self, "gradient", gradient, y.shape, y)
        size = accurate(gradient).abs()
        if self.mode == "fisher-diag":
            return (error * size).square().sum(1).mean().to(y.dtype)
        weighted = error * size
        return (weighted.sum((1, 2, 3), keepdim=True) * weighted / 100).mean().to(y.dtype)
