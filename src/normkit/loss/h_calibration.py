"""h-calibration: probabilities held to how often they come true, in every window of probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate

SLACK = 0.01  # what rounding in half precision may add
WEIGHTINGS = ("clustered", "equal_width", "unweighted")


@method(
    "h-calibration",
    paper="h-calibration: Rethinking Classifier Recalibration with Probabilistic Error-Bounded Objective (Huang et "
    "al., 2025), arXiv 2506.17968",
    shape="N C : unit",
    over="N C",
    inputs={"target": "N : index C", "centroids?": "15 : unit"},
    example={"num_classes": lambda classes: classes, "window": 2, "loss_weight": 1.0},
    exempt={
        "processes": "windows go over the whole set; join it before the call",
        **dict.fromkeys(("extremes huge", "extremes offset"), "numbers above 1 are no probabilities, and are refused"),
    },
)
class HCalibration(Loss):
    """Compare, in a window over all probabilities in order, what is said too much with what is said too little.

    For a monotone map of a trained classifier's logits, set on held-out data as a whole (the authors: Adam, 0.005), not
    for the classifier itself. Of all events, a class of a sample, in the order of their probability p,

        A, B = averages of p (1 - y) and (1 - p) y over window + 1 events, zeros beyond the ends
        e = max(|A - B| - epsilon, 0)

    and the loss is ``loss_weight`` times the mean of e, or the mean over bins of (sum of e in it) / (count + 1e-5).
    With ``leave_one_out`` it is the mean of C such numbers, each without the samples of one class. The order, the bins
    and their counts carry no gradient.

    Args:
        num_classes: C.
        weighting: ``"clustered"``: bins around centroids; ``"equal_width"``: bins of equal width, with both ends;
            ``"unweighted"``: none.
        window: an even number, well below that of events: a window of all events has A = B.
        epsilon: what difference is no fault.
        leave_one_out: leave out the samples of each class in turn; else none.
        loss_weight: the weight of the whole.
        num_bins: how many bins there are.

    ``loss(probs, target, centroids=None)``: (N, C), classes int64 (N,), and the sorted centers of the bins (num_bins,);
    None: found by k-means, begun at the quantiles.

    h-calibration (2025), arXiv 2506.17968.

    Differs from the authors' code in: without centroids the same ones come out of each call.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        weighting: str = "clustered",
        window: int = 200,
        epsilon: float = 1e-20,
        leave_one_out: bool = True,
        loss_weight: float = 1e5,
        num_bins: int = 15,
    ):
        super().__init__()
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.weighting = check.choice(self, "weighting", weighting, WEIGHTINGS)
        self.window = check.size(self, "window", window, least=0)
        if self.window % 2:
            raise ValueError(f"HCalibration: window must be even, not {window}")
        self.epsilon = check.eps(self, epsilon, "epsilon")
        self.leave_one_out = leave_one_out
        self.loss_weight = check.number(self, "loss_weight", loss_weight)
        self.num_bins = check.size(self, "num_bins", num_bins)

    def forward(self, probs: Tensor, target: Tensor, centroids: Tensor | None = None) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "probs", probs, (None, self.num_classes), probs)
        check.index(self, "target", target, probs.shape[:1], self.num_classes, probs)
        wide = accurate(probs)
        if check.readable(probs) and not ((wide > -SLACK) & (wide < 1 + SLACK)).all():
            raise ValueError("HCalibration: probs must be probabilities, from 0 to 1; of logits take the softmax")
        if centroids is not None:
            check.values(self, "centroids", centroids, (self.num_bins,), probs)
            centroids = accurate(centroids).to(wide.dtype)
        elif self.weighting == "clustered":
            centroids = _centers(wide.detach().flatten(), self.num_bins)
        own = F.one_hot(target, self.num_classes).to(wide.dtype)
        kept = [target != k for k in range(self.num_classes)] if self.leave_one_out else [target >= 0]
        losses = [self._core(wide, own, rows, centroids) for rows in kept]
        return (self.loss_weight * torch.stack(losses).mean()).to(probs.dtype)

    def _core(self, probs: Tensor, own: Tensor, rows: Tensor, centroids: Tensor | None) -> Tensor:
        """The loss over the samples in ``rows``; the events of the others stand last, as zeros like those beyond."""
        kept = rows.unsqueeze(1).expand_as(probs).flatten()
        key = (probs.detach().flatten().clamp(min=0) + 1e-20).log()
        order = torch.where(kept, key, torch.inf).argsort(stable=True)
        over, under = (probs * (1 - own)).flatten(), ((1 - probs) * own).flatten()
        kept, p = kept[order], probs.detach().flatten()[order]
        difference = torch.where(kept, (over - under)[order], 0)
        errors = F.relu(self._average(difference).abs() - self.epsilon)
        return self._weigh(torch.where(kept, errors, 0), p, kept, centroids)

    def _average(self, x: Tensor) -> Tensor:
        """The mean over window + 1 neighbours of each, with zeros beyond the ends."""
        if not len(x):
            return x
        return F.avg_pool1d(x[None, None], self.window + 1, stride=1, padding=self.window // 2)[0, 0]

    def _weigh(self, errors: Tensor, p: Tensor, kept: Tensor, centroids: Tensor | None) -> Tensor:
        if self.weighting == "unweighted":
            return errors.sum() / kept.sum().clamp(min=1)
        if self.weighting == "equal_width":
            edges = torch.arange(self.num_bins + 1, device=p.device, dtype=p.dtype) / self.num_bins
            inside = (p >= edges[:-1, None]) & (p <= edges[1:, None])
        else:
            nearest = _nearest(p, centroids)  # type: ignore[arg-type]
            inside = nearest == torch.arange(self.num_bins, device=p.device).unsqueeze(1)
        inside = (inside & kept).to(errors.dtype)
        return (inside @ errors / (inside.sum(1) + 1e-5)).mean()


def _nearest(p: Tensor, centroids: Tensor) -> Tensor:
    """Which centroid is nearest to each number, the first of equally near ones."""
    return (p.unsqueeze(1) - centroids).abs().argmin(1)


@torch.no_grad()
def _centers(p: Tensor, count: int, rounds: int = 50) -> Tensor:
    """Centers of groups of numbers, by k-means from the quantiles on."""
    if not len(p):
        return p.new_zeros(count)
    ordered = p.sort().values
    steps = torch.arange(count, device=p.device)
    centers = ordered[(2 * steps + 1) * len(p) // (2 * count)]
    for _ in range(rounds):
        nearest = _nearest(p, centers)
        number = torch.zeros_like(centers).scatter_add(0, nearest, torch.ones_like(p))
        total = torch.zeros_like(centers).scatter_add(0, nearest, p)
        centers = torch.where(number > 0, total / number.clamp(min=1), centers).sort().values
    return centers
