"""A function's slopes between points, those counted most that are steepest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.manifold._slopes import squared_distances
from normkit.statistics import accurate, full_precision, reals


@method(
    "manifold-lipschitz",
    paper="Learning Globally Smooth Functions on Manifolds (Cervino et al., 2023), ICML, arXiv 2210.00301",
    shape="4 C",
    over="4",
    inputs={"x": "4 3", "data_loss": " : unit"},
    example={"num_points": 4},
    exempt={
        "gradcheck": "the points are constants",
        "higher-derivatives": "the points are constants",
        "moves": "update moves them",
        "compile batches train": "torch makes a second graph where the sizes of both inputs are symbols",
    },
)
class ManifoldLipschitz(Loss):
    """Add to a loss the squared changes of a function between points, weighted by where it is steepest.

    For functions whose largest slope matters and not the mean one: ``laplacian-penalty`` with weights that are learned.
    With A_ij the squared distance of two points below the radius, L = diag(A 1) - A, and W the weights on a diagonal,

        loss = data_weight data_loss + tr((W f)ᵀ L f)

    :meth:`update`, after each step of the function, raises the weights of points by their largest difference quotient,
    which points at one place do not have.
    It raises ``data_weight``, up to 2, while the loss of the data is above ``epsilon``.

    Args:
        num_points: N.
        epsilon: the loss of the data that is allowed.
        step: of the dual variables.
        radius2: the squared distance from which on pairs are left out; None: none are.

    ``loss(f, x, data_loss)``: values (N, C) at points (N, ...), which carry no gradient, and a single number. State:
    ``weights`` (N,), 1 / N at the start, and ``data_weight``, 1.

    Learning Globally Smooth Functions on Manifolds (Cervino et al., 2023), arXiv 2210.00301. As in its code edges weigh
    by squared distances, where the paper has a kernel that decays.

    Differs from the authors' code in: ``data_weight`` starts from 1, theirs from what the memory held.
    """

    weights: Tensor
    data_weight: Tensor

    def __init__(self, num_points: int, *, epsilon: float = 1.0, step: float = 0.01, radius2: float | None = None):
        super().__init__()
        self.num_points = check.size(self, "num_points", num_points)
        self.epsilon = check.number(self, "epsilon", epsilon)
        if math.isinf(self.epsilon):
            raise ValueError(f"ManifoldLipschitz: epsilon must be finite, not {epsilon}")
        self.step = check.number(self, "step", step, 0.0)
        self.radius2 = None if radius2 is None else check.number(self, "radius2", radius2, 0.0, open_low=True)
        self.register_buffer("weights", torch.full((num_points,), 1 / num_points))
        self.register_buffer("data_weight", torch.tensor(1.0))

    def forward(self, f: Tensor, x: Tensor, data_loss: Tensor) -> Tensor:
        """Return the loss, a single number."""
        values, squared, loss = self._read(f, x, data_loss)
        near = squared if self.radius2 is None else torch.where(squared < self.radius2, squared, 0)
        with full_precision(f):
            slopes = _slopes(values, accurate(self.weights).to(values.dtype).unsqueeze(1), near)
        return (accurate(self.data_weight) * loss + slopes).to(f.dtype)

    @torch.no_grad()
    def update(self, f: Tensor, x: Tensor, data_loss: Tensor) -> Tensor:
        """Move the dual variables, and return the weights (N,)."""
        values, squared, loss = self._read(f, x, data_loss)
        self.data_weight.copy_((self.data_weight + self.step * (loss - self.epsilon)).clamp(0, 2))
        quotients = torch.cdist(values, values, p=1) / squared.sqrt()
        steepest = torch.where(squared > 0, quotients, 0).amax(1)
        moved = (self.weights + self.step * steepest).relu()
        self.weights.copy_(moved / moved.sum())
        return self.weights.clone()

    def _read(self, f: Tensor, x: Tensor, data_loss: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, squared distances and the loss of the data, in the accurate type."""
        values = reals(self, "f", f, (self.num_points, None))
        check.floating(self, x, "x")
        check.values(self, "x", x, (self.num_points, *x.shape[1:]), f)
        loss = reals(self, "data_loss", data_loss, (), f)
        return values, squared_distances(x).to(values.dtype), loss.to(values.dtype)


def _slopes(f: Tensor, weights: Tensor, near: Tensor) -> Tensor:
    """tr((W f)ᵀ L f), of which a level that all values share costs no digits."""
    level = f.mean(0)
    apart, uneven = f - level, weights - weights.mean()
    changes, turns = (near.sum(1, keepdim=True) * part - near @ part for part in (apart, uneven))
    return (weights * apart * changes).sum() + ((apart * turns).sum(0) * level).sum()
