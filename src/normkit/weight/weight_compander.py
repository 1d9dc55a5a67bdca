"""Weight compander: large weights pressed together, small ones spread."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.statistics import accurate


@method(
    "weight-compander",
    paper="Weight Compander: A Simple Weight Reparameterization for Regularization (Cakaj et al., 2023), "
    "arXiv 2306.16993",
    evidence="equations",
    shape="C I",
    over="",
    example={"shape": lambda rows: (rows, 5)},
    provenance="the function alone; the authors' code and the values that they start from are not public",
)
class WeightCompander(Parametrization):
    """Bend each entry of a weight by an arctangent, so that none leaves a range and small ones move faster.

    For regularization beside weight decay, where no entry of a weight should grow large. Where the length of a filter
    is meant, take ``weight-norm``, and for the largest singular value ``spectral-norm``.

    With a and b the layer's own,

        weight = a arctan(raw / b)

    No entry is larger than a pi / 2, and around 0 the slope is a / b.

    Args:
        shape: of the weight.
        a, b: what they start at, both above 0; 1 and 1 change small weights hardly.
        learnable: whether they are learned. Let no decay act on them: it would shrink the range to nothing.

    State: ``a`` and ``b``, both (1,), if they are learned. :meth:`reset` gives the raw weight that a weight comes from.

    Weight Compander (Cakaj, Mehnert, Yang, 2023), arXiv 2306.16993.
    """

    finite = True

    a: nn.Parameter | float
    b: nn.Parameter | float

    def __init__(self, shape: Sequence[int], *, a: float = 1.0, b: float = 1.0, learnable: bool = True):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.learnable = bool(learnable)
        for name, start in (("a", a), ("b", b)):
            start = check.number(self, name, start, 0.0, open_low=True)
            setattr(self, name, nn.Parameter(torch.full((1,), start)) if learnable else start)

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        wide = accurate(raw)
        a, b = (torch.as_tensor(value, dtype=wide.dtype, device=raw.device).view(1) for value in (self.a, self.b))
        flat = wide.flatten(1) if wide.dim() > 1 else wide
        gain = (a * (math.pi / 2)).expand(flat.shape[-1])
        return ops.derf(flat, 1 / b, weight=gain, function="arctan").view(self.shape).to(raw.dtype)

    @torch.no_grad()
    def reset(self, weight: Tensor) -> Tensor:
        """Return the raw weight that gives ``weight``; one with an entry out of range is refused."""
        check.values(self, "weight", weight, self.shape, weight)
        if why := self.refusal(weight):
            raise ValueError(f"{type(self).__name__}: {why}")
        return (self.b * torch.tan(accurate(weight) / self.a)).to(weight.dtype)

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        if (why := super().refusal(weight)) or not check.readable(weight):
            return why
        a, most = _plain(self.a), float(weight.detach().abs().max())
        if most < abs(a) * math.pi / 2:
            return ""
        return (
            f"weight has an entry of size {most:.4g}, but a={a:.4g} lets none reach {abs(a) * math.pi / 2:.4g}; a "
            "larger a takes it"
        )

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take over a weight, which stays what it was."""
        return self.reset(weight)


def _plain(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else value
