"""Convolutions on digits, by norm, activation and head."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from normkit import catalog
from normkit.claims.training import Bed, Contest, outputs, started, together
from normkit.lab.plan.data import images_of

WIDTH, SPLIT, GROUPS, STRENGTH, BASIS_STEPS = 16, 1000, 4, 1e-2, 2000
ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU, "none": nn.Identity}


class Run(NamedTuple):
    """A norm by name, what follows it, the batch, how many samples are seen, and what else is changed.

    head: "linear" or "basis". width: of the features before the head; 0 for all. penalty: whether groups of filters are
    held orthogonal. share: of the samples that are seen. permute: whether the start has other numbers of the same law.
    """

    norm: str = "batchnorm"
    act: str = "relu"
    batch: int = 32
    samples: int = 3200
    head: str = "linear"
    width: int = 0
    penalty: bool = False
    share: float = 1.0
    permute: bool = False


class Net(nn.Module):
    """Three convolutions with norms, the first two of stride 2; classify from the mean."""

    def __init__(self, run: Run):
        super().__init__()
        self.layers = convolutions(run.norm, ACTIVATIONS[run.act], (2, 2, 1))
        self.narrow = nn.Linear(2 * WIDTH, run.width) if run.width else nn.Identity()
        self.output = head_of(run.head, run.width or 2 * WIDTH)
        self.penalty = nk.GroupOrthogonality(GROUPS) if run.penalty else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Score the digits, and return what is added to the loss."""
        scores = self.output(self.narrow(self.layers(x).mean((2, 3))))
        filters = [layer.weight for layer in self.layers if isinstance(layer, nn.Conv2d)]
        return scores, scores.new_zeros(()) if self.penalty is None else STRENGTH * self.penalty(filters)


def convolutions(norm: str, act: Callable[[], nn.Module], strides: Sequence[int]) -> nn.Sequential:
    """Three convolutions of digits, each with a norm and an activation."""
    layers: list[nn.Module] = []
    for stride, (ins, outs) in zip(strides, ((1, WIDTH), (WIDTH, WIDTH), (WIDTH, 2 * WIDTH)), strict=True):
        layers.append(nn.Conv2d(ins, outs, 3, stride=stride, padding=1, bias=False))
        layers += [norm_of(norm, outs), act()]
    return nn.Sequential(*layers)


def norm_of(name: str, channels: int) -> nn.Module:
    """A norm by name, of four groups where it has groups."""
    groups = {"num_groups": GROUPS} if "num_groups" in nk.card(name).signature.parameters else {}
    return catalog.create(name, channels, **groups)


def head_of(name: str, width: int) -> nn.Module:
    """What scores classes, learned or fixed."""
    if name == "linear":
        return nn.Linear(width, 10)
    basis = nk.EquiangularBasis(width, 10)
    basis.weight.copy_(directions(width))
    return basis


@functools.cache
def directions(width: int) -> Tensor:
    """Ten nearly orthogonal vectors, the same in every run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        basis = nk.EquiangularBasis(width, 10)
        basis.generate(steps=BASIS_STEPS)
    return basis.weight


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """The images and their labels."""
    images = images_of("digits", None)
    return images.images.float(), images.labels


def rows_of(run: Run, seed: int) -> tuple[Tensor, Tensor]:
    """The rows of each batch, (steps, batch), and those that are held out."""
    chance = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(digits()[1]), generator=chance)
    order = torch.cat([rows[torch.randperm(SPLIT, generator=chance)] for _ in range(-(-run.samples // SPLIT))])
    steps = int(run.samples * run.share) // run.batch
    return order[: steps * run.batch].view(steps, run.batch), rows[SPLIT:]


def loss(model, x: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy and what the net adds."""
    scores, more = model(x)
    return F.cross_entropy(scores, labels) + more


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Train, and return how many held-out digits are right, of a hundred."""
    x, labels = digits()
    batches, held = (torch.stack(part) for part in zip(*(rows_of(run, seed) for seed in seeds), strict=True))
    nets = [started(Net(run), seed, run.permute) for seed in seeds]
    trained = together(
        nets, loss, lambda step: (x[batches[:, step]], labels[batches[:, step]]), batches.shape[1], rates
    )
    answers = outputs(nets[0], trained, x[held])[0].argmax(-1)
    return (100 * (answers == labels[held]).float().mean(1)).tolist()


CONTEST = Contest(scores, (3e-3, 1e-2, 3e-2))
BATCHNORM = Run()
HALF = Run(share=0.5)
IMAGES = Bed(
    "images",
    "Three convolutions of 16, 16 and 32 channels, the first two of stride 2, on 1,000 of scikit-learn's digits. "
    "3,200 samples are seen in batches of 32 or 64, by Adam whose rate falls to 0, at a variant's own best rate; the "
    "accuracy is that on the other 797.",
    (CONTEST.known("half", "Half of the training costs a point or more.", BATCHNORM, HALF, 1.0),),
    "Small batches, depth, long training, large images, and what shows below its smallest effect.",
)
better, not_worse, as_good = CONTEST.better, CONTEST.not_worse, CONTEST.as_good


def as_groupnorm(name: str):
    """The claim that a norm with its own activation is as good as group norm and SiLU."""
    over = Run("groupnorm", "silu", batch=64)
    return as_good("as-groupnorm", "In batches of 64 it is within a point of group norm and SiLU.", "images",
                   over._replace(norm=name, act="none"), over, 1.0, draws=16)  # fmt: skip


def as_batchnorm(name: str):
    """The claim that a norm with its own activation is as good as batch norm and ReLU."""
    return as_good("as-batchnorm", "It is within a point of batch norm and ReLU.", "images", Run(name, "none"),
                   BATCHNORM, 1.0, draws=16)  # fmt: skip
