"""h-calibration: probabilities held to how often they come true, in every window of probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate, widest

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
        difference = (wide - F.one_hot(target, self.num_classes).to(wide.dtype)).flatten()
        with torch.no_grad():
            value, slope = self._value_and_slope(difference.detach(), wide.detach().flatten(), target, centroids)
        loss = value + (slope * (difference - difference.detach())).sum()  # where the order stays it is linear
        return (self.loss_weight * loss).to(probs.dtype)

    def _value_and_slope(
        self, difference: Tensor, p: Tensor, target: Tensor, centroids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of p - y, and its derivative by each: held for all classes it would be C times as large."""
        order = (p.clamp(min=0) + 1e-20).log().argsort(stable=True)
        difference, label = widest(difference[order]), target[order // self.num_classes]
        bins = self._bins(p[order], centroids)
        value, slope = torch.zeros_like(difference).sum(), torch.zeros_like(difference)
        left_out = range(self.num_classes) if self.leave_one_out else (-1,)
        for k in left_out:
            kept = label != k
            place = torch.where(kept, kept.cumsum(0) - 1, len(kept))
            mean, weight = self._average(_moved(difference, place)), _moved(self._weight(bins, kept), place)
            errors = F.relu(mean.abs() - self.epsilon)
            value = value + (errors * weight).sum()
            pull = self._average(torch.where(errors > 0, mean.sign() * weight, 0))
            slope = slope + F.pad(pull, (0, 1))[place]
        slope = torch.zeros_like(slope).scatter(0, order, slope)
        return tuple((sums / len(left_out)).to(p.dtype) for sums in (value, slope))  # type: ignore[return-value]

    def _average(self, x: Tensor) -> Tensor:
        """The mean over window + 1 neighbours of each, with zeros beyond the ends."""
        width = self.window + 1
        sums = F.pad(x, (self.window // 2 + 1, self.window // 2)).cumsum(0)
        return (sums[width:] - sums[:-width]) / width

    def _bins(self, p: Tensor, centroids: Tensor | None) -> Tensor | None:
        """The bins (any, E) that each event is in; ``num_bins`` is none."""
        if self.weighting == "unweighted":
            return None
        if self.weighting == "equal_width":
            edges = torch.arange(self.num_bins + 1, device=p.device, dtype=p.dtype) / self.num_bins
            low, high = (torch.searchsorted(edges, p, right=right) - 1 for right in (False, True))
            bins = torch.stack([low, torch.where(high == low, self.num_bins, high)])
            return torch.where(bins < 0, self.num_bins, bins)
        return torch.searchsorted(_borders(centroids.sort().values), p).unsqueeze(0)  # type: ignore[union-attr]

    def _weight(self, bins: Tensor | None, kept: Tensor) -> Tensor:
        """What each event's error counts."""
        if bins is None:
            return widest(kept.float()) / kept.sum().clamp(min=1)
        count = bins.new_zeros(self.num_bins + 1)
        count = count.scatter_add(0, bins.flatten(), kept.long().expand_as(bins).flatten())
        weight = 1 / (widest(count) + 1e-5) / self.num_bins
        return F.pad(weight[:-1], (0, 1))[bins].sum(0)


def _moved(x: Tensor, place: Tensor) -> Tensor:
    """Numbers at their new places, and zeros elsewhere; what goes to the place behind the last is left out."""
    return F.pad(torch.zeros_like(x), (0, 1)).scatter(0, place, x)[:-1]


def _borders(centers: Tensor) -> Tensor:
    """Up to where each of the sorted centers but the last is the nearest, the first of equal ones."""
    middle = torch.where(centers[1:] == centers[:-1], torch.inf, (centers[1:] + centers[:-1]) / 2)
    return middle.flip(0).cummin(0).values.flip(0)


@torch.no_grad()
def _centers(p: Tensor, count: int, rounds: int = 50) -> Tensor:
    """Centers of groups of numbers, by k-means from the quantiles on."""
    if not len(p):
        return p.new_zeros(count)
    ordered = p.sort().values
    steps = torch.arange(count, device=p.device)
    centers = ordered[(2 * steps + 1) * len(p) // (2 * count)]
    sums = F.pad(widest(ordered).cumsum(0), (1, 0))
    for _ in range(rounds):
        inner = torch.searchsorted(ordered, _borders(centers), right=True)
        ends = F.pad(F.pad(inner, (1, 0)), (0, 1), value=len(p))
        number, total = ends.diff(), sums[ends].diff()
        centers = torch.where(number > 0, (total / number.clamp(min=1)).to(p.dtype), centers).sort().values
    return centers
