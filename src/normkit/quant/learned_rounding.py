"""Learned rounding: whether each weight goes up or down is learned, the grid stays."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.quant._rounding import GAMMA, PAPER, PROVENANCE, ZETA, share
from normkit.statistics import accurate

LEAST = 1e-8  # of a scale


@method(
    "learned-rounding",
    paper=PAPER,
    evidence="library",
    shape="C I",
    over="I",
    example={"shape": lambda rows: (rows, 5)},
    provenance=PROVENANCE,
    exempt={
        "moves": "fit sets the grid, and training leaves it",
        "reached": "the weight is on its grid: only the rounding is learned",
    },
)
class LearnedRounding(Parametrization):
    """Round a weight to a grid, each entry up or down as is learned from a few inputs.

    For quantization after training at 4 bits and below, where the nearest grid point is not the best. Where the weight
    itself may be tuned, with bias and ranges, take ``adaquant``.

    With w the weight, s the scale, z the zero point,

        h = clip(1.2 sigmoid(alpha) - 0.1, 0, 1)
        k = floor(w / s) + h in training,    floor(w / s) + [alpha >= 0] in evaluation
        weight = (clip(k + z, 0, 2^bits - 1) - z) s

    Train alpha alone, by ``reconstruction-loss`` and ``rounding-regularizer`` for each layer, then evaluate.

    Args:
        shape: of the weight.
        bits: of a number.
        per_channel: a grid for each row, axis 0, else one for all.

    State: ``alpha`` as the weight, ``scale`` and ``zero_point`` (shape[0],) or (1,). :meth:`fit` sets the grid from the
    range of a weight, and alpha so that training begins at that weight. Entries that an end of the grid clips are
    off by up to half a step. An assignment through ``torch.nn.utils.parametrize`` does so too. No gradient flows to the
    weight.

    Gradient-Based Post-Training Quantization: Challenging the Status Quo (Yvinec, Dapogny, Bailly, 2023), arXiv
    2308.07662.
    """

    per_output = True
    finite = True
    alpha: nn.Parameter
    scale: Tensor
    zero_point: Tensor

    def __init__(self, shape: Sequence[int], *, bits: int = 4, per_channel: bool = True):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.bits, self.per_channel = check.size(self, "bits", bits, most=16), bool(per_channel)
        self.most = 2**self.bits - 1
        rows = self.shape[0] if per_channel else 1
        self.alpha = nn.Parameter(torch.zeros(self.shape))
        self.register_buffer("scale", torch.full((rows,), 2.0 / self.most))  # of a weight between -1 and 1
        self.register_buffer("zero_point", torch.full((rows,), float(round(self.most / 2))))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight on its grid, or between grid points in training."""
        check.values(self, "weight", weight, self.shape, weight)
        wide = accurate(weight)
        scale, zero = self._rows(self.scale, wide), self._rows(self.zero_point, wide)
        return ((self._code(wide, scale, zero) - zero) * scale).to(weight.dtype)

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        """Return the whole numbers that stand for the weight in evaluation, 0 to 2^bits - 1, int32."""
        check.values(self, "weight", weight, self.shape, weight)
        wide = accurate(weight)
        scale, zero = self._rows(self.scale, wide), self._rows(self.zero_point, wide)
        return self._code(wide, scale, zero, soft=False).to(torch.int32)

    def _code(self, wide: Tensor, scale: Tensor, zero: Tensor, soft: bool | None = None) -> Tensor:
        soft = self.training if soft is None else soft
        up = share(accurate(self.alpha).to(wide.dtype)) if soft else (self.alpha >= 0).to(wide.dtype)
        return torch.clamp(torch.floor(wide / scale) + up + zero, 0, self.most)

    def _rows(self, numbers: Tensor, like: Tensor) -> Tensor:
        return accurate(numbers).to(like.dtype).view(-1, *[1] * (len(self.shape) - 1))

    @torch.no_grad()
    def fit(self, weight: Tensor) -> None:
        """Set the grid from the range of ``weight``, and alpha so that training begins at it."""
        check.values(self, "weight", weight, self.shape, weight)
        if why := self.refusal(weight):
            raise ValueError(f"{type(self).__name__}: {why}")
        wide = accurate(weight.detach())
        rows = wide.reshape(len(self.scale), -1)
        low, high = rows.amin(1).clamp(max=0), rows.amax(1).clamp(min=0)
        kept = torch.finfo(self.scale.dtype)
        scale = ((high - low) / self.most).clamp(min=max(LEAST, kept.tiny * kept.eps))
        self.scale.copy_(scale)
        self.zero_point.copy_((-low / scale).round())
        steps = wide / self._rows(self.scale, wide)
        rest = steps - steps.floor()
        self.alpha.copy_(-((ZETA - GAMMA) / (rest - GAMMA) - 1).log())

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a weight over, and set the grid from it."""
        self.fit(weight)
        return weight
