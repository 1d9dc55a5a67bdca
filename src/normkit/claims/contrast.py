"""Colored digits whose tints and contrast are other ones in the test: where a norm that drops style helps."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from normkit import catalog
from normkit.claims.images import SPLIT, digits, rows_of
from normkit.claims.images import Run as Batches
from normkit.claims.training import Bed, Contest, outputs, together
from normkit.lab.plan.models import permuted, same_start

WIDTH, SEEN, UNSEEN = 16, (0.8, 1.2), (0.5, 0.8)


class Run(NamedTuple):
    """A norm by name and where it stands, and which digits are asked.

    place: of the block's branch and sum, or "shortcut", where its norm is batch norm. test: "seen" or "unseen"
    contrast and tints. share: of the samples that are seen. permute: whether the start has other numbers.
    """

    norm: str = "batchnorm"
    place: str = "branch"
    test: str = "unseen"
    share: float = 1.0
    permute: bool = False


class Net(nn.Module):
    """A convolution, a residual block and the mean."""

    def __init__(self, run: Run):
        super().__init__()
        branch, shortcut = (run.norm if run.place == place else "batchnorm" for place in ("branch", "shortcut"))
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.first = catalog.create(branch, WIDTH)
        self.conv = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1, bias=False)
        self.skip = nn.Conv2d(WIDTH, 2 * WIDTH, 1, stride=2, bias=False)
        self.short = catalog.create(shortcut, 2 * WIDTH)
        placed = run.norm if run.place == "block" else "none"
        self.last = nk.InstanceNormPlacement(2 * WIDTH, placement=placed)
        self.output = nn.Linear(2 * WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Score the digits."""
        h = torch.relu(self.first(self.stem(x)))
        return self.output(self.last(self.conv(h), self.short(self.skip(h))).mean((2, 3)))


def tinted(x: Tensor, gains: tuple[float, float], chance: torch.Generator) -> Tensor:
    """Three channels of each image, each of a contrast and a brightness of its own."""
    low, high = gains
    gain = low + (high - low) * torch.rand(*x.shape[:-3], 3, 1, 1, generator=chance)
    return gain * x + (1 - gain) * (2 * torch.rand(gain.shape, generator=chance) - 1)


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Train, and return how many held-out digits are right, of a hundred."""
    x, labels = digits()
    rows = [rows_of(Batches(samples=2 * SPLIT, share=run.share), seed) for seed in seeds]
    batches, held = (torch.stack(part) for part in zip(*rows, strict=True))
    chance = torch.Generator().manual_seed(0)
    colored = tinted(x, SEEN, chance)
    asked = colored if run.test == "seen" else tinted(x, UNSEEN, chance)
    own = run._replace(norm="none" if run.place == "block" and run.norm == "batchnorm" else run.norm)
    nets = [same_start(Net(own), seed) for seed in seeds]
    nets = [permuted(net, seed) for net, seed in zip(nets, seeds, strict=True)] if run.permute else nets

    def loss(model, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(x), labels)

    steps = batches.shape[1]
    trained = together(
        nets, loss, lambda step: (colored[batches[:, step]], labels[batches[:, step]]), steps, rates
    )  # fmt: skip
    answers = outputs(nets[0], trained, asked[held]).argmax(-1)
    return (100 * (answers == labels[held]).float().mean(1)).tolist()


class Seen(Contest):
    """A contest in which the rate is the best one on what is like the training."""

    __slots__ = ()

    def rate(self, run: Run) -> float:
        """The best rate where tints and contrast are as in training."""
        return super().rate(run._replace(test="seen"))


CONTEST = Seen(scores, (3e-3, 1e-2, 3e-2))
PLAIN = Run()
CONTRAST = Bed(
    "contrast",
    f"A convolution and a residual block of 16 and 32 channels on 1,000 colored digits. 2,000 are seen, at a contrast "
    f"of {SEEN[0]} to {SEEN[1]} a channel; the other 797 are asked at {UNSEEN[0]} to {UNSEEN[1]}. Adam, at the best "
    "rate on seen contrasts.",
    (
        CONTEST.known(
            "instance-norm",
            "Under unseen contrasts instance norm is a point better than batch norm, or more.",
            Run("instancenorm"),
            PLAIN,
            1.0,
        ),
    ),
    "Styles other than contrast and tint, large images, and depth.",
)
better = functools.partial(CONTEST.better, bed="contrast")
as_good = functools.partial(CONTEST.as_good, bed="contrast")


def drop(seed: int, run: Run) -> float:
    """How many points fewer a norm loses under unseen contrasts than batch norm does."""
    return CONTEST.gain(seed, run, PLAIN) - CONTEST.gain(seed, run._replace(test="seen"), PLAIN._replace(test="seen"))


def in_the_shortcut(name: str):
    """The claim that a norm is better than batch norm in the shortcut."""
    return better(
        "unseen-contrast",
        "In the shortcut, under unseen contrasts and tints, it is a point better than batch norm, or more.",
        run=Run(name, "shortcut"),
        over=PLAIN,
        by=1.0,
    )
