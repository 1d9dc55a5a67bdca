"""Normalize-and-project: weights in front of a norm, held at the length that they were born with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.ops.sharded import whole
from normkit.statistics import accurate
from normkit.weight._shapes import no_direction

NONE = "a weight of zeros has no direction"


@method(
    "normalize-and-project",
    paper="Normalization and Effective Learning Rates in Reinforcement Learning (Lyle et al., 2024), arXiv 2407.01800",
    evidence="equations",
    shape="C I",
    over="C I",
    example={"shape": lambda rows: (rows, 5)},
    invariant=("scale",),
    provenance="the paper's description; no code is public",
    exempt={
        "extremes zeros": NONE,
        "extremes tiny float16": "1e-20 is 0 in float16",
        "moves norm": "the length is that of the start",
    },
)
class NormalizeAndProject(Parametrization):
    """Bring a weight back to the length that it had at the start.

    For training that goes on and on: a weight in front of a norm only has a direction, but as it grows its steps turn
    it less and less. Put a LayerNorm or RMSNorm between every linear map and its nonlinearity, leave the maps' biases
    out, and after every step (``nk.weight.project(model, optimizer, "normalize-and-project")``)

        weight = raw * norm / |raw|,    norm the length at the start, over the whole weight

    The output layer has no norm behind it and is left alone. Any decay of the learning rate must now be written down:
    the one that growing weights brought is gone. Moments of the optimizer stay as they are.

    Args:
        shape: of the weight.

    State: ``norm`` (1,), 1 until :meth:`reset`. Gains and shifts of the norms: :meth:`project_affine`, where a
    positively homogeneous nonlinearity and another norm follow.

    Normalization and Effective Learning Rates in Reinforcement Learning (Lyle et al., 2024), arXiv 2407.01800.
    """

    norm: Tensor
    projects = True

    def __init__(self, shape: Sequence[int]):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.register_buffer("norm", torch.ones(1))

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        return self.project(raw)

    def project(self, raw: Tensor) -> Tensor:
        """Return ``raw`` at the length of the start."""
        check.values(self, "raw", raw, self.shape, raw)
        wide = accurate(raw)
        return (wide * (self.norm[0].to(wide.dtype) / whole(torch.linalg.vector_norm(wide)))).to(raw.dtype)

    def project_affine(self, scale: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Return a norm's gain and shift (d,), scaled so that their squares add up to d, as at the start."""
        check.values(self, "scale", scale, (None,), scale)
        check.values(self, "offset", offset, scale.shape, scale)
        s, o = accurate(scale), accurate(offset)
        factor = math.sqrt(len(s)) / (s.square().sum() + o.square().sum()).sqrt()
        return (s * factor).to(scale.dtype), (o * factor).to(offset.dtype)

    @torch.no_grad()
    def reset(self, raw: Tensor) -> None:
        """Let the length be that of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        self.norm.copy_(whole(torch.linalg.vector_norm(accurate(raw))))

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        return no_direction(torch.linalg.vector_norm(accurate(weight.detach())))

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a weight over as the raw one, and its length as the one to keep."""
        self.reset(weight)
        return weight
