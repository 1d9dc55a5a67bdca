"""STORM's features: what several passes with dropout tell of whether a sample's label is right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Fitted
from normkit.statistics import accurate

LEAST = 1e-8  # a deviation of fewer than two numbers


@method(
    "storm-features",
    paper="Learning from Noisy Labels via Self-Taught On-the-Fly Meta Loss Rescaling (Heck et al., 2025), "
    "arXiv 2412.12955",
    shape="S N : unit",
    over="S N",
    inputs={"logits": "S N C", "target": "N : index C"},
    example={"num_classes": lambda classes: classes, "batch_size": 4},
)
class StormFeatures(Fitted):
    """Describe each sample by its loss and confidence over passes with dropout, and by where they lie in its class.

    For ``storm-rescaler``.

    Per sample, over R passes: mean and deviation of the loss, and of the largest probability; it agrees if the arg max
    is the label in more than half of the passes, in exactly half if it is in the first. Each of four numbers has beside
    it its mean and deviation over the class' last samples that agree as it does. Two more are how far the sample's
    losses are from theirs: with N(m, s) the sample's and N(M, S) theirs in the mean,

        kl = log(S / s) + (s² + (m - M)²) / (2 S²) - 1/2, 0 where a deviation is;   ovl = the area below both densities

    Args:
        num_classes: C.
        window: of a class the last ``window`` times ``batch_size`` samples are remembered, of a larger batch all of
            it; 0: the batch alone.
        batch_size: of the batches.
        separate: remember each class apart; else all together.
        categories: look up only those that agree as the sample does; else all.
        agreement: return as a last feature whether it agrees.

    ``features(losses, logits, target)``: (R, N), (R, N, C) and int64 (N,), pass 0 the one that is trained on; returns
    (N, 19): value, mean and deviation of loss mean, loss deviation, confidence mean, confidence deviation, kl and ovl,
    then the agreement. No gradient. Each call is remembered, in evaluation too; :meth:`reset` after each epoch. The
    memory is not saved.

    STORM (Heck et al., 2025), arXiv 2412.12955.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        window: int = 1,
        batch_size: int,
        separate: bool = True,
        categories: bool = True,
        agreement: bool = True,
    ):
        super().__init__()
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.window = check.size(self, "window", window, least=0)
        self.batch_size = check.size(self, "batch_size", batch_size)
        self.separate, self.categories, self.agreement = separate, categories, agreement
        self.reset()

    def reset(self) -> None:
        """Forget the samples seen."""
        self.memory: dict[int, Tensor] = {}

    @torch.no_grad()
    def forward(self, losses: Tensor, logits: Tensor, target: Tensor) -> Tensor:
        """Return the features (N, 19), and remember the samples."""
        check.values(self, "losses", losses, (None, None), losses)
        check.values(self, "logits", logits, (*losses.shape, self.num_classes), losses)
        check.index(self, "target", target, losses.shape[1:], self.num_classes, losses)
        if not losses.isfinite().all():
            raise ValueError("StormFeatures: losses must be finite")
        own = self._own(accurate(losses), accurate(logits), target)
        groups = target if self.separate else torch.zeros_like(target)
        memory = {g: self._remembered(g, own[groups == g]) for g in groups.unique().tolist()}
        features = own.new_zeros(len(own), 18)
        for g, history in memory.items():
            for category in (0, 1) if self.categories else (None,):
                those = groups == g if category is None else (groups == g) & (own[:, 4] == category)
                like = history if category is None else history[history[:, 4] == category]
                features[those] = _describe(own[those], like)
        self.memory |= memory if self.window else {}
        features = torch.cat([features, own[:, 4:]], 1) if self.agreement else features
        return features.to(losses.dtype)

    def _own(self, losses: Tensor, logits: Tensor, target: Tensor) -> Tensor:
        """The four numbers of each sample, and whether it agrees: (N, 5)."""
        confidence = torch.softmax(logits, 2).amax(2)
        right = logits.argmax(2) == target
        votes, half = right.sum(0) * 2, len(right)
        agrees = (votes > half) | ((votes == half) & right[0])
        several = len(losses) > 1
        parts = [(x.mean(0), x.std(0) if several else torch.zeros_like(x[0])) for x in (losses, confidence)]
        return torch.stack([*parts[0], *parts[1], agrees.to(losses.dtype)], 1)

    def _remembered(self, group: int, new: Tensor) -> Tensor:
        """The last samples of a group, with the new ones."""
        if not self.window:
            return new
        old = self.memory.get(group, new[:0]).to(new)
        return torch.cat([old, new])[-max(self.window * self.batch_size, len(new)) :]


def _describe(own: Tensor, like: Tensor) -> Tensor:
    """Each sample's numbers with mean and deviation of those that it is compared with: (N, 18)."""
    center = like[:, 0].mean(), like[:, 1].mean()
    columns = []
    for value, those in [
        *((own[:, i], like[:, i]) for i in range(4)),
        (_divergence(own, *center), _divergence(like, *center)),
        (_overlap(own, *center), _overlap(like, *center)),
    ]:
        spread = those.std() if len(those) > 1 else those.new_tensor(LEAST)
        columns += [value, those.mean().expand_as(value), spread.expand_as(value)]
    return torch.stack(columns, 1)


def _divergence(own: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    m, s = own[:, 0], own[:, 1]
    mask = (s > 0) & (std > 0)
    s, wide = torch.where(mask, s, 1), torch.where(std > 0, std, 1)
    kl = (wide / s).log() + (s.square() + (m - mean).square()) / (2 * wide.square()) - 0.5
    return torch.where(mask, kl, 0)


def _overlap(own: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """The area below both of two normal densities."""
    m, s = own[:, 0], own[:, 1].clamp(min=LEAST)
    std = std.clamp(min=LEAST).expand_as(s)
    # the narrower one about 0: a density above the other between two crossings
    narrow, broad = torch.minimum(s, std), torch.maximum(s, std)
    apart = (m - mean).abs()
    equal = narrow == broad
    spread = torch.where(equal, 1, broad.square() - narrow.square())
    middle = -apart * narrow.square() / spread
    reach = narrow * broad * (apart.square() + 2 * spread * (broad / narrow).log()).sqrt() / spread
    crossings = middle - reach, middle + reach
    inside = [_below((x - at) / width) for at, width in ((0, narrow), (apart, broad)) for x in crossings]
    area = 1 - (inside[1] - inside[0]) + (inside[3] - inside[2])
    return torch.where(equal, 2 * _below(-apart / (2 * narrow)), area)


def _below(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-x / math.sqrt(2))
