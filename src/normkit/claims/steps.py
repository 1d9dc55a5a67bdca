"""A network of two hidden layers that one optimizer or another brings to recognize digits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from normkit.claims.images import SPLIT, digits
from normkit.claims.kinds import Trained, below
from normkit.claims.training import Bed, Contest, started
from normkit.lab.plan.data import chances
from normkit.lab.plan.optimizers import make_optimizer

HIDDEN, STEPS, BATCH, EACH, SPIKE, SPIKED = 32, 80, 64, 4, 50.0, 20


class Run(NamedTuple):
    """An optimizer by name, and what is changed beside it: spikes of the gradient, norms, the steps, and the start."""

    name: str = "adamw"
    spikes: bool = False
    norm: bool = False
    share: float = 1.0
    permute: bool = False


class Path(NamedTuple):
    """The held-out loss at every fourth step, and the length of the hidden weights at the start and the end."""

    losses: list[float]
    lengths: tuple[float, float]


def network(norm: bool) -> nn.Sequential:
    """Two hidden layers."""
    between = (lambda: nn.BatchNorm1d(HIDDEN)) if norm else nn.Identity
    return nn.Sequential(nn.Linear(64, HIDDEN), between(), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), between(), nn.ReLU(),
                         nn.Linear(HIDDEN, 10))  # fmt: skip


@functools.cache
def path(run: Run, seed: int, lr: float) -> Path:
    """Train at a rate that stays, and look at digits that were held out."""
    (x, labels), chance = digits(), torch.Generator().manual_seed(seed)
    x, rows = x.flatten(1), torch.randperm(len(x), generator=chance)
    first, held = rows[:SPLIT], rows[SPLIT:]
    losses = []
    with chances(seed), torch.enable_grad():
        model = started(network(run.norm), seed, run.permute)
        optimizer, before = make_optimizer(run.name, model, lr, 0.0), length(model)
        for step in range(1, int(STEPS * run.share) + 1):
            which = first[torch.randint(SPLIT, (BATCH,), generator=chance)]
            optimizer.zero_grad()
            F.cross_entropy(model(x[which]), labels[which]).backward()
            if run.spikes and step % SPIKED == 0:
                for weight in model.parameters():
                    weight.grad.mul_(SPIKE)  # type: ignore[union-attr]
            optimizer.step()
            if step % EACH == 0:
                losses.append(loss(model, x[held], labels[held]))
    return Path(losses, (before, length(model)))


@torch.no_grad()
def loss(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean loss in evaluation."""
    value = F.cross_entropy(model.eval()(x), labels).item()
    model.train()
    return value


def length(model: nn.Module) -> float:
    """The length of the first layer's weights."""
    return next(model.parameters()).detach().norm().item()


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """The last loss, its sign turned."""
    return [-path(run, seed, lr).losses[-1] for seed, lr in zip(seeds, rates, strict=True)]


CONTEST = Contest(scores, (1e-3, 3e-3, 1e-2), relative=True)
ADAMW = Run()


def best(run: Run, seed: int) -> Path:
    """A seed's path at the run's best rate."""
    return path(run, seed, CONTEST.rate(run))


def steps_to(seed: int, run: Run, over: Run = ADAMW) -> float:
    """The steps to another one's last loss, as a share of its steps; 2 where it is not reached."""
    goal = best(over, seed).losses[-1]
    reached = [at for at, value in enumerate(best(run, seed).losses, 1) if value <= goal]
    return reached[0] * EACH / STEPS if reached else 2.0


def risen(seed: int, name: str) -> float:
    """By how much spikes raise an optimizer's own last loss, in percent."""
    run = Run(name)
    return 100 * (path(run._replace(spikes=True), seed, CONTEST.rate(run)).losses[-1] / best(run, seed).losses[-1] - 1)


def grown(seed: int, name: str, lr: float, permute: bool = False) -> float:
    """How much the length of weights grows, as a share of that under AdamW at the same rate."""
    ways = [path(Run(own, norm=True, permute=moved), seed, lr) for own, moved in ((name, permute), ("adamw", False))]
    one, other = (way.lengths[1] - way.lengths[0] for way in ways)
    return one / other


PERCEPTRON = Bed(
    "perceptron",
    "A network of two hidden layers of 32 on 1,000 of scikit-learn's digits, by 80 steps of batches of 64 at an "
    "optimizer's own best rate, which stays. The loss is that on the other 797.",
    (
        CONTEST.known("fewer-steps", "Half of the steps cost 5 % of the loss or more.", ADAMW, Run(share=0.5), by=5.0),
        CONTEST.known("sgd", "Plain descent is 5 % behind AdamW or more.", ADAMW, Run("sgd:momentum=0"), by=5.0),
    ),
    "Depth, long training, rates that fall, and gradients of language, whose classes are heavy-tailed.",
)
better = functools.partial(CONTEST.better, bed="perceptron")
not_worse = functools.partial(CONTEST.not_worse, bed="perceptron")


def fewer_steps(name: str, paper: str) -> Trained:
    """Whether an optimizer comes to AdamW's last loss in fewer steps."""
    return Trained(
        "fewer-steps",
        says="It comes to AdamW's last loss in 0.8 of the steps, or fewer.",
        measure=functools.partial(steps_to, run=Run(name)),
        wanted=below(0.8),
        control=functools.partial(steps_to, run=Run(permute=True)),
        against="AdamW from another start",
        number="share of the steps",
        null=1.0,
        bed="perceptron",
        paper=paper,
    )
