"""What the norms of batches of positive definite matrices share."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from normkit import check, ops, statistics
from normkit.manifold import _symmetric
from normkit.manifold._points import definite, square
from normkit.norm import Norm
from normkit.running import Path, Running, is_averaging, track
from normkit.statistics import accurate

CONSTANT = "batch statistics are constants for the gradient"
INDEFINITE = "these are not positive definite matrices"
EXEMPT = {
    "gradcheck train": CONSTANT,
    "higher-derivatives": _symmetric.FIRST,
    "extremes huge": INDEFINITE,
}


class DefiniteNorm(Running, Norm):
    """A norm of matrices (N, n, n), or (N, h, n, n), whose statistics are means over samples that can be joined."""

    momentum: float
    running_mean: Tensor
    points: ClassVar[tuple[str, ...]] = ("weight",)  # parameters that are positive definite

    def __init__(self, n: int, momentum: float, sync: bool, process_group):
        super().__init__()
        self.n = check.size(self, "n", n)
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        self.sync, self.process_group = bool(sync), process_group

    def _matrices(self, x: Tensor, dims: tuple[int, ...] = (3, 4)) -> Tensor:
        """Require positive definite matrices, and return them in the accurate type."""
        check.floating(self, x)
        wide = square(self, "x", x, x.dim() if x.dim() in dims else dims[0], self.n)
        return definite(self, "x", wide)

    def _parameter(self, name: str, dtype: torch.dtype, *, clamped: bool = False) -> Tensor:
        """A parameter made symmetric; one that is not positive definite is refused, unless it is clamped later."""
        matrix = _symmetric.symmetric(accurate(getattr(self, name)).to(dtype))
        if not clamped and check.readable(matrix) and not ops.soundness(matrix)[2].all():
            raise ValueError(
                f"{check.whose(self)}: {name} must stay positive definite, and an optimizer's step may end elsewhere; "
                "take a smaller step, or nk.manifold.to_geoopt and an optimizer of geoopt"
            )
        return matrix

    def _mean(self, values: Tensor) -> Tensor:
        """The mean over samples, of all processes with ``sync``."""
        return self._mean_and_count(values)[0]

    def _mean_and_count(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and of how many samples it is."""
        return statistics.mean_and_count(values, (0,), sync=self.sync, group=self.process_group)

    def _karcher(self, points: Tensor, mean: Tensor, floor: _symmetric.Real) -> Tensor:
        """One step from ``mean`` to the affine-invariant mean of points, with a floor of eigenvalues."""
        of = _symmetric.spectrum(mean)
        root, inverse = _symmetric.sqrt(of, floor), _symmetric.rsqrt(of, floor)
        logs = _symmetric.log(_symmetric.symmetric(inverse @ points @ inverse), floor)
        return _symmetric.symmetric(root @ _symmetric.exp(self._mean(logs)) @ root)

    def _follow(self, count: Tensor, mean: Tensor, path: Path) -> None:
        """Move the running mean along a path to that of ``count`` points, unless there are none."""
        some = count > 0
        if not is_averaging(self.running_mean) or some:
            track(self.running_mean, mean, self.momentum, lambda old, *of: torch.where(some, path(old, *of), old))


def geodesic(floor: _symmetric.Real) -> Path:
    """The affine-invariant geodesic from a running mean to that of a batch, with a floor of eigenvalues."""

    def path(running: Tensor, mean: Tensor, rate: float) -> Tensor:
        of = _symmetric.spectrum(_symmetric.symmetric(running.to(mean.dtype)))
        root, inverse = _symmetric.sqrt(of, floor), _symmetric.rsqrt(of, floor)
        step = _symmetric.power(_symmetric.symmetric(inverse @ mean @ inverse), rate)
        return _symmetric.symmetric(root @ step @ root)

    return path
