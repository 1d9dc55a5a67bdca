"""LAME: the predictions of a batch, corrected so that near features get like labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import create, method
from normkit.inference._features import OfFeatures
from normkit.inference._scores import scores
from normkit.kinds import make_guard
from normkit.statistics import full_precision

NAME = "lame"
AFFINITIES = ("rbf", "knn", "linear")
LEAST = 1e-10  # beside a probability under the logarithm
FLOOR = 1e-20  # of an assignment there
CLOSE = 1e-8  # the relative change of the energy at which rounds end


class OfNeighbours(OfFeatures):
    """:func:`lame` behind a model: of each batch, samples with near features get like labels."""

    name = NAME

    def __init__(self, model: nn.Module, *, head: str | None = None, guard: str = "off", **options: Any):
        super().__init__(model, head=head, guard=guard)
        self.correct = create(NAME, **options)
        self.correct(torch.full((1, 2), 0.5), torch.ones(1, 2))  # which refuses values that it does not take
        model.requires_grad_(False)

    def answer(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return the logarithm of the assignments."""
        return (self.correct(logits.softmax(1), features) + LEAST).log()


@method(
    NAME,
    paper="Parameter-free Online Test-time Adaptation (Boudiaf et al., 2022), arXiv 2201.05718",
    shape="N C : simplex",
    inputs={"features": "N F"},
    around=OfNeighbours,
    exempt={"gradcheck": "assignments carry no gradient"},
)
@torch.no_grad()
def lame(
    probabilities: Tensor,
    features: Tensor,
    *,
    affinity: str = "rbf",
    neighbours: int = 5,
    symmetric: bool = False,
    max_steps: int = 100,
    guard: str = "off",
) -> Tensor:
    """Correct the predicted probabilities of a batch, so that samples with near features get like labels.

    For batches that are not independent, where adapting a model's parameters fails; the model is left alone. In mixed
    batches take ``tent``, which adapts the model itself.

    With features of length 1, u = -log(p + 1e-10) and W their affinities, from Y = softmax(-u),

        Y <- softmax(-u + W Y)

    until the energy sum(u Y - (W Y) Y + Y log Y) stays, at least three rounds.

    Not for batches of mixed classes: W Y sums over the batch, and pulls a sample to the class that is common there,
    unless "knn" has fewer ``neighbours`` than there are samples of each class. On digits the default, which is that of
    the authors' code, loses 48 points in i.i.d. batches of 32, "knn" 11; both gain 9 of one class at a time.

    Args:
        probabilities: of the model, (N, K).
        features: of the samples, (N, D).
        affinity: "rbf": exp(-d² / (2 s²)), s the mean distance to the ``neighbours``-th nearest, itself counted;
            "knn": 1 for the ``neighbours`` nearest others; "linear": the cosine.
        neighbours: how many; all where there are fewer samples.
        symmetric: use the mean of W and its transpose.
        max_steps: rounds at most.
        guard: "off"; "stop" or "reset", which are one since nothing is kept: where the correction of this batch
            collapses, as :class:`normkit.kinds.Guard` tells, ``probabilities`` are returned, with a warning.

    Returns assignments (N, K), without a gradient.

    Parameter-free Online Test-time Adaptation (Boudiaf et al., 2022), arXiv 2201.05718.
    """
    check.choice(NAME, "affinity", affinity, AFFINITIES)
    check.size(NAME, "neighbours", neighbours), check.size(NAME, "max_steps", max_steps)
    wide = scores(NAME, "probabilities", probabilities, (None, None))
    near = _affinities(scores(NAME, "features", features, (len(wide), None), wide), affinity, neighbours)
    if symmetric:
        near = (near + near.mT) / 2
    cost = -(wide + LEAST).log()
    assignments, energy = torch.softmax(-cost, 1), None
    for step in range(max_steps):
        with full_precision(near):
            pulls = near @ assignments
        assignments = torch.softmax(pulls - cost, 1)
        now = (cost * assignments - pulls * assignments + assignments * assignments.clamp(min=FLOOR).log()).sum()
        if step > 1 and energy is not None and bool((now - energy).abs() <= CLOSE * energy.abs()):
            break
        energy = now
    watch = make_guard(NAME, guard)
    if watch is not None and watch.look((wide + LEAST).log(), (assignments + LEAST).log()):
        return probabilities.clone()
    return assignments.to(probabilities.dtype)


def _affinities(features: Tensor, affinity: str, neighbours: int) -> Tensor:
    unit = F.normalize(features, dim=1)
    if affinity == "linear":
        with full_precision(unit):
            return unit @ unit.mT
    far = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
    count = len(features)
    if affinity == "knn":
        nearest = far.topk(min(neighbours + 1, count), largest=False).indices[:, 1:]
        return torch.zeros_like(far).scatter_(1, nearest, 1.0)
    width = far.topk(min(neighbours, count), largest=False).values[:, -1:].mean()
    return torch.exp(-far.square() / (2 * width.square()).clamp(min=torch.finfo(far.dtype).tiny))
