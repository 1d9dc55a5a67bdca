"""Gaussian normality: how far a sample lies from normal ones, in their own spread."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import Fitted
from normkit.statistics import accurate, full_precision, root

REDUCTIONS = (None, "pca", "npca")


@method(
    "gaussian-normality",
    paper="Modeling the Distribution of Normal Data in Pre-Trained Deep Features for Anomaly Detection (Rippel et al., "
    "2020), arXiv 2005.14140",
    shape="N C",
    over="N",
    invariant=("rotation", "shift"),
)
class GaussianNormality(Fitted):
    """Fit one Gaussian to features of normal samples, and return how far a sample lies from its mean.

    For anomalies, of which there are no examples: features of a trained net, averaged over space, a Gaussian for each
    level of the net and the mean of their distances. With S the biased covariance of N samples, and m its mean
    variance,

        precision = inverse of (1 - s) S + s m I,    s of Ledoit and Wolf
        distance = sqrt((f - mean)ᵀ precision (f - mean))

    The shrinkage lets N be below D, but not be 2 where D is more than 1. With c the first component, from 0, at which
    the share of variance of the larger ones together is above ``variance_threshold``, ``"pca"`` first keeps components
    0 .. c, and ``"npca"``, the paper's, c - 1 and all smaller ones, in which anomalies show. At c = 0 that is the last
    one alone, as in the authors' code.

    Args:
        num_features: D; None: found by ``fit``.
        reduction: None, ``"pca"`` or ``"npca"``.
        variance_threshold: of the reduction, between 0 and 1.

    ``fit(features)`` with (N, D), then ``normality(features)``, (M, D), returns (M,). ``score_samples`` is
    scikit-learn's name for minus the distance. State: ``mean`` (K,) and ``precision`` (K, K), with a reduction also
    ``center`` (D,) and ``components`` (K, D).

    Modeling the Distribution of Normal Data (Rippel et al., 2020), arXiv 2005.14140.
    """

    mean: Tensor
    precision: Tensor
    center: Tensor
    components: Tensor

    def __init__(
        self, num_features: int | None = None, *, reduction: str | None = None, variance_threshold: float = 0.95
    ):
        super().__init__()
        self.num_features = None if num_features is None else check.size(self, "num_features", num_features)
        self.reduction = check.choice(self, "reduction", reduction, REDUCTIONS)
        self.variance_threshold = check.number(self, "variance_threshold", variance_threshold, 0.0, 1.0)
        known = 0 if reduction or num_features is None else num_features
        self.register_buffer("mean", torch.zeros(known))
        self.register_buffer("precision", torch.eye(known))
        if reduction:
            self.register_buffer("center", torch.zeros(num_features or 0))
            self.register_buffer("components", torch.zeros(0, num_features or 0))

    late = ("mean", "precision", "center", "components")

    @property
    def n_features_in_(self) -> int:
        """D, as scikit-learn asks for it; none before it is known."""
        if not len(self.mean):
            raise AttributeError("n_features_in_ is known after fit")
        return len(self.center if self.reduction else self.mean)

    @torch.no_grad()
    def fit(self, features: Tensor, y: object = None) -> GaussianNormality:
        """Set the Gaussian by features (N, D) of at least two normal samples."""
        scores(self, "features", features, (None, self.num_features))
        if features.isinf().any():
            raise ValueError("GaussianNormality: features has inf")
        n, d = features.shape
        if n < 2 or not d:  # in scikit-learn's words
            raise ValueError(
                f"GaussianNormality: features has n_samples = {n}, at least 2 are wanted, and {d} feature(s) "
                f"(shape=({n}, {d})) while a minimum of 1 is required."
            )
        with full_precision(features):
            state = self._gaussian(accurate(features).to(accurate(self.mean).dtype))
        for name, value in state.items():
            setattr(self, name, value.to(self.mean.dtype).contiguous())
        return self

    def _gaussian(self, x: Tensor) -> dict[str, Tensor]:
        """The buffers that samples (N, D) make."""
        n, d = x.shape
        state, least = {}, (max(n, d) * torch.finfo(x.dtype).eps) ** 2 * (x - x.mean(0)).square().sum() / n
        if self.reduction:
            center, components = self._directions(x)
            state = {"center": center, "components": components}
            x = (x - center) @ components.mT
        mean = x.mean(0)
        return state | {"mean": mean, "precision": torch.linalg.inv(_shrunk(x - mean, least))}

    def _directions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, and the components that are kept."""
        center = x.mean(0)
        _, lengths, components = torch.linalg.svd(x - center, full_matrices=False)
        share = lengths.square().cumsum(0) / lengths.square().sum()
        above = share > self.variance_threshold
        cut = int(above.to(torch.int64).argmax()) if above.any() else len(share) - 1
        if self.reduction == "pca":
            return center, components[: cut + 1]
        if cut == 0:
            words = "the first component alone is above variance_threshold: only the last is kept"
            warnings.warn(f"GaussianNormality: {words}", stacklevel=7)  # what wraps fit lies between
        return center, components[cut - 1 :]

    def forward(self, features: Tensor) -> Tensor:
        """Return the distances (M,) of features (M, D)."""
        if not len(self.mean):
            raise self._unfitted()
        wide = scores(self, "features", features, (None, self.n_features_in_), self.mean)
        mean, precision = accurate(self.mean), accurate(self.precision)
        x = wide.to(mean.dtype)
        with full_precision(x):
            if self.reduction:
                x = (x - accurate(self.center)) @ accurate(self.components).mT
            x = x - mean
            return root(((x @ precision) * x).sum(1).clamp(min=0)).to(features.dtype)

    def score_samples(self, features: Tensor) -> Tensor:
        """Return minus the distances: more is more normal."""
        return -self(features)


def _shrunk(x: Tensor, least: Tensor) -> Tensor:
    """The covariance of centered samples (N, D), moved towards equal variances as Ledoit and Wolf have it.

    A variance of ``least`` is rounding.
    """
    n, d = x.shape
    covariance = x.mT @ x / n
    mean = covariance.trace() / d
    spread = covariance - mean * torch.eye(d, dtype=x.dtype, device=x.device)
    # sum over samples of |x xᵀ - S|², without those matrices
    noise = (x.square().sum(1).square().sum() - n * covariance.square().sum()) / (d * n**2)
    total = spread.square().sum() / d
    noise = torch.minimum(noise.clamp(min=0), total)
    shrinkage = torch.where(noise > 0, noise / torch.where(noise > 0, total, 1), 0)
    singular = shrinkage <= 8 * torch.finfo(x.dtype).eps and torch.linalg.matrix_rank(covariance, hermitian=True) < d
    if singular or covariance.trace() <= least:
        raise ValueError(
            f"GaussianNormality: features must have samples whose covariance has an inverse, but these {n} are alike, "
            f"at two ends of a line, or without variance along the {d} components that are kept"
        )
    return covariance - shrinkage * spread
