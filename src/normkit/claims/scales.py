"""Two teachers or tasks, one of a hundred times the other's scale, and a student too small for both."""

from __future__ import annotations

import functools
import math

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn
from normkit.claims.training import Bed

SAMPLES, INPUTS, WIDTH, RANK, SCALE = 400, 32, 16, 8, 100.0
STEPS, BATCH, HIDDEN, RATE, SPREAD = 150, 64, 16, 1e-2, 10.0


def errors(method: str, scale: float = SCALE) -> list[float]:
    """The relative error of each teacher by the best student of rank 8 of the targets that a method makes."""
    x, law = randn(SAMPLES, INPUTS), torch.logspace(0, -1, WIDTH, dtype=torch.float64)
    targets = [size * x @ randn(INPUTS, WIDTH) * law @ torch.linalg.qr(randn(WIDTH, WIDTH)).Q for size in (1.0, scale)]
    maps = [nk.PHIS(WIDTH, method="standard" if method == "raw" else method).double() for _ in targets]
    if method != "raw":
        for own, target in zip(maps, targets, strict=True):
            own.fit(target)
    joined = torch.cat([own(target) for own, target in zip(maps, targets, strict=True)], 1)
    fitted = x @ torch.linalg.lstsq(x, joined).solution
    directions = torch.linalg.svd(fitted, full_matrices=False).Vh[:RANK]
    parts = (fitted @ directions.mT @ directions).split(WIDTH, 1)
    back = [part @ own.inverse_matrix.mT + own.mean for part, own in zip(parts, maps, strict=True)]
    return [((made - target).norm() / (target - target.mean(0)).norm()).item() ** 2
            for made, target in zip(back, targets, strict=True)]  # fmt: skip


def imbalance(seed: int, method: str = "raw", scale: float = SCALE) -> float:
    """How many times one teacher's error is the other's, as a logarithm to the base of 2."""
    one, other = errors(method, scale)
    return abs(math.log2(one / other))


def relative_losses(seed: int, balanced: bool, spread: float = SPREAD) -> float:
    """The sum of what two tasks have left of their first losses, after training with weights that move or stay."""
    shared = torch.randn(10, 4)
    tasks = [size * torch.tanh(torch.randn(10, 4) * 0.5 + shared) for size in (1.0 / spread, 1.0)]
    trunk, heads = nn.Sequential(nn.Linear(10, HIDDEN), nn.ReLU()), nn.ModuleList(nn.Linear(HIDDEN, 4) for _ in tasks)
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=RATE)
    weights, first = nk.GradNorm(2), None
    for _ in range(STEPS):
        x = torch.randn(BATCH, 10)
        features = trunk(x)
        losses = torch.stack([(head(features) - torch.tanh(x) @ task).square().mean()
                              for head, task in zip(heads, tasks, strict=True)])  # fmt: skip
        first = losses.detach() if first is None else first
        lengths = [torch.autograd.grad(loss, next(trunk.parameters()), retain_graph=True)[0].norm() for loss in losses]
        optimizer.zero_grad()
        (weights(losses) if balanced else losses.sum()).backward()
        optimizer.step()
        weights.update(losses.detach(), torch.stack(lengths))
    assert first is not None
    return (losses.detach() / first).sum().item()


def share(seed: int, spread: float = SPREAD) -> float:
    """This sum with weights that move, as a share of that with equal ones."""
    moved = relative_losses(seed, True, spread)
    torch.manual_seed(seed)
    return moved / relative_losses(seed, False, spread)


TWO_SCALES = Bed(
    "two-scales",
    "Two linear teachers of 16 features, one a hundred times as large, and the best student of rank 8 of both in "
    "closed form; two tasks of a network of one hidden layer of 16, the losses of which differ a hundred times.",
    (
        Measured(
            "left-behind",
            says="The small teacher's relative error is twice that of the large one, or more.",
            measure=imbalance,
            wanted=above(1.0),
            control=functools.partial(imbalance, scale=1.0),
            against="teachers of one scale",
            number="log2 of the ratio",
            draws=8,
            rule="mean",
            null=0.0,
        ),
    ),
    "Deep networks, and teachers that agree.",
)
