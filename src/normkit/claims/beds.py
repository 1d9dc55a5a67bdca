"""Beds: where models are trained for claims, what each must see, and what it is blind to.

A bed trains a variant from a seed and returns a number; two variants of one seed have the same start and batches. Each
variant trains at its own best rate, which seeds of the search alone decide.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.claims.blends import CHANNELS_BED
from normkit.claims.clients import SHIFTED_CLIENTS
from normkit.claims.features import FEATURES
from normkit.claims.images import IMAGES, SPLIT, WIDTH, convolutions, digits
from normkit.claims.imbalance import RARE, rise
from normkit.claims.kinds import Measured, above
from normkit.claims.language import LANGUAGE
from normkit.claims.laws import LAWS
from normkit.claims.noise import NOISY
from normkit.claims.plane import PLANE
from normkit.claims.scales import TWO_SCALES
from normkit.claims.steps import PERCEPTRON
from normkit.claims.tasks import TASKS_BED
from normkit.claims.trained import TRAINED
from normkit.claims.training import Bed, Contest, started
from normkit.lab.plan.data import chances

SAMPLES = 3200


class Run(NamedTuple):
    """A norm by name, the size of batches, how these are drawn, and what else is changed.

    stream: "iid", or "pairs" of classes. share: of the samples that are seen. permute: whether the start has other
    numbers of the same law.
    """

    norm: str
    batch: int = 32
    stream: str = "iid"
    share: float = 1.0
    permute: bool = False


class Net(nn.Module):
    """Three convolutions with norms; classify from the mean."""

    def __init__(self, run: Run):
        super().__init__()
        self.layers, self.output = convolutions(run.norm, nn.ReLU, (1, 2, 1)), nn.Linear(2 * WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Score the digits."""
        return self.output(self.layers(x).mean((2, 3)))


def batches(run: Run, seed: int) -> tuple[list[Tensor], Tensor]:
    """The rows of each batch, and those that are held out."""
    labels, chance = digits()[1], torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(labels), generator=chance)
    first, held = rows[:SPLIT], rows[SPLIT:]
    count = int(SAMPLES * run.share) // run.batch
    if run.stream == "iid":
        order = torch.cat([first[torch.randperm(SPLIT, generator=chance)] for _ in range(SAMPLES // SPLIT + 1)])
        return list(order[: count * run.batch].view(count, run.batch)), held
    picks = []
    for _ in range(count):
        pair = torch.randperm(10, generator=chance)[:2]
        own = first[(labels[first, None] == pair).any(1)]
        picks.append(own[torch.randint(len(own), (run.batch,), generator=chance)])
    return picks, held


@functools.cache
def accuracy(run: Run, seed: int, lr: float) -> float:
    """Train with Adam at a rate that falls to 0, and return how many held-out digits are right, of a hundred."""
    x, labels = digits()
    picks, held = batches(run, seed)
    with chances(seed), torch.enable_grad():
        model = started(Net(run), seed, run.permute)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        for step, rows in enumerate(picks):
            optimizer.param_groups[0]["lr"] = lr * (1 - step / len(picks))
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return 100 * (model.eval()(x[held]).argmax(1) == labels[held]).float().mean().item()


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """The accuracy at each pair of a seed and a rate."""
    return [accuracy(run, seed, lr) for seed, lr in zip(seeds, rates, strict=True)]


CONTEST = Contest(scores, (3e-3, 1e-2, 3e-2))
BATCHNORM = Run("batchnorm")
PAIRS, HALF = BATCHNORM._replace(stream="pairs"), BATCHNORM._replace(share=0.5)
as_good = functools.partial(CONTEST.as_good, bed="digits")
DIGITS = Bed(
    "digits",
    "Three convolutions of 16, 16 and 32 channels on 1,000 of scikit-learn's digits, 8 x 8. 3,200 samples are seen, by "
    "Adam whose rate falls to 0, at a variant's own best rate; the accuracy is that on the other 797.",
    (
        CONTEST.known("two-classes", "Batches of two classes cost batch norm a point or more.", BATCHNORM, PAIRS, 1.0),
        CONTEST.known("half", "Half of the training costs a point or more.", BATCHNORM, HALF, 1.0),
    ),
    "Depth, long training, large images, many classes, and what shows below its smallest effect.",
)
GAUSSIANS = Bed(
    "gaussians",
    "Gaussian classes around known means, and a network of one hidden layer or a ridge regression. One class is rare, "
    "600 samples to 10, or classes were never seen.",
    (
        Measured(
            "rare-class",
            says="At 60 to 1 gradient descent first raises the loss of the rare class, by 5 % or more.",
            measure=rise,
            wanted=above(0.05),
            control=functools.partial(rise, many=RARE),
            against="classes of one size",
            number="rise of the loss",
            draws=8,
        ),
    ),
    "Anything that features which are learned would change.",
)
BEDS = (
    DIGITS,
    GAUSSIANS,
    IMAGES,
    SHIFTED_CLIENTS,
    FEATURES,
    LANGUAGE,
    PERCEPTRON,
    TWO_SCALES,
    TRAINED,
    LAWS,
    CHANNELS_BED,
    NOISY,
    PLANE,
    TASKS_BED,
)
