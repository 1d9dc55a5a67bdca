"""Densities of the plane: couplings of two layers that learn them, and velocity fields that carry samples to them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

import normkit as nk
from normkit.claims.kinds import Trained, below
from normkit.claims.training import DRAWS, Bed, Contest, outputs, started, together

BINS, BOUND, STEPS, BATCH, TEST = 8, 3.0, 400, 128, 2000
PARAMETERS = {"spline": 3 * BINS - 1, "affine": 2}
HIDDEN = {"spline": 16, "affine": 24}  # of equal numbers of weights
LIMIT = 3.0  # of an affine curve's log slope, beyond which some seeds diverge
PATHS, PAIRS, FIELD, SAMPLES, RATE = 400, 64, 48, 200, 1e-2


class Run(NamedTuple):
    """Couplings by name, the density, how many layers, and what is changed beside: the steps, and the start."""

    kind: str = "affine"
    data: str = "checkerboard"
    layers: int = 2
    share: float = 1.0
    permute: bool = False


def points_of(data: str, count: int, chance: torch.Generator) -> Tensor:
    """Samples (count, 2)."""
    one, other = torch.rand(2, count, generator=chance)
    if data == "checkerboard":
        row = torch.randint(4, (count,), generator=chance)
        column = 2 * torch.randint(2, (count,), generator=chance) + row % 2
        return torch.stack([column + one, row + other], 1) - 2
    normal = torch.randn(count, 2, generator=chance)
    angle = 2 * math.pi * one
    around = torch.stack([angle.cos(), angle.sin()], 1)
    if data == "rings":
        return around * (1 + (other < 0.5).float())[:, None] + 0.08 * normal
    if data == "eight":
        angle = math.pi / 4 * (8 * one).floor()
        return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.15 * normal
    upper = other < 0.5  # moons
    half = torch.stack([(math.pi * one).cos(), (math.pi * one).sin()], 1)
    return torch.where(upper[:, None], half, torch.tensor([1.0, 0.5]) - half) + 0.05 * normal


class Coupling(nn.Module):
    """Bend one coordinate by a curve that the other one gives."""

    def __init__(self, kind: str):
        super().__init__()
        hidden = HIDDEN[kind]
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.last = nn.Linear(hidden, PARAMETERS[kind])
        self.spline = nk.RationalQuadraticSpline(BINS, tails="linear", tail_bound=BOUND) if kind == "spline" else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image and the logarithm of its slope."""
        parameters, b = self.last(self.network(x[:, :1])), x[:, 1]
        if self.spline is not None:
            b, log_det = self.spline(b, *parameters.split([BINS, BINS, BINS - 1], 1))
        else:
            shift, raw = parameters.unbind(1)
            log_det = LIMIT * (raw / LIMIT).tanh()
            b = b * log_det.exp() + shift
        return torch.stack([x[:, 0], b], 1), log_det


class Couplings(nn.Module):
    """Couplings, the coordinates changed behind each; return the log density."""

    def __init__(self, run: Run):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(run.kind) for _ in range(run.layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the log density of each sample."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            x, total = x.flip(1), total + log_det
        return total - x.square().sum(1) / 2 - math.log(2 * math.pi)


def starts(make, seeds: Sequence[int], permute: bool) -> list[nn.Module]:
    """Models from seeds, those of twins with other numbers."""
    models = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 10**6 * permute)
            models.append(started(make(), seed, permute))
    return models


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Train, and return the mean log density of new samples."""
    chances = [torch.Generator().manual_seed(seed) for seed in seeds]
    first = [points_of(run.data, STEPS * BATCH, chance) for chance in chances]
    x = torch.stack(first).view(len(seeds), STEPS, BATCH, 2)
    models = starts(functools.partial(Couplings, run), seeds, run.permute)
    trained = together(
        models, lambda model, x: -model(x).mean(), lambda step: (x[:, step],), int(STEPS * run.share), rates
    )  # fmt: skip
    test = torch.stack([points_of(run.data, TEST, chance) for chance in chances])
    return outputs(models[0], trained, test).mean(1).tolist()


CONTEST = Contest(scores, (3e-3, 1e-2, 3e-2))


class Way(NamedTuple):
    """How pairs of two samples come about, "alone" or "ot", and what else is changed."""

    pairs: str = "alone"
    share: float = 1.0
    permute: bool = False


def pairs_of(way: Way, seed: int) -> tuple[Tensor, Tensor]:
    """Points on the ways and velocities, with the time as a third coordinate."""
    chance, points = torch.Generator().manual_seed(seed), []
    method = nk.ot_cfm if way.pairs == "ot" else nk.conditional_flow_matching
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(max(1, int(PATHS * way.share))):
            t = torch.rand(PAIRS, generator=chance)
            x, u = method(points_of("eight", PAIRS, chance), points_of("moons", PAIRS, chance), t)
            points.append(torch.cat([x, t[:, None], u], 1))
    return torch.stack(points).split([3, 2], 2)


def field() -> nn.Module:
    """A velocity at a point and a time."""
    return nn.Sequential(nn.Linear(3, FIELD), nn.SiLU(), nn.Linear(FIELD, FIELD), nn.SiLU(), nn.Linear(FIELD, 2))


def off(model, x: Tensor, u: Tensor) -> Tensor:
    """How far velocities are from those of pairs."""
    return (model(x) - u).square().sum(1).mean()


@functools.cache
def carried(way: Way, block: int) -> list[dict[str, float]]:
    """For each seed: the energy of the paths, and how far samples are from data, after 1 and 32 steps."""
    seeds = range(block * DRAWS, (block + 1) * DRAWS)
    x, u = (torch.stack(part) for part in zip(*(pairs_of(way, seed) for seed in seeds), strict=True))
    models = starts(field, seeds, way.permute)
    trained = together(models, off, lambda step: (x[:, step], u[:, step]), x.shape[1], [RATE] * DRAWS)
    chances = [torch.Generator().manual_seed(10**6 + seed) for seed in seeds]
    source, data, other = (
        torch.stack([points_of(name, SAMPLES, chance) for chance in chances]) for name in ("eight", "moons", "moons")
    )
    numbers = [{"data": distance(*both)} for both in zip(other, data, strict=True)]
    for count in (1, 32):
        z, energy = source, torch.zeros(DRAWS)
        for step in range(count):
            t = torch.full((DRAWS, SAMPLES, 1), step / count)
            v = outputs(models[0], trained, torch.cat([z, t], 2))
            z, energy = z + v / count, energy + v.square().sum(2).mean(1) / count
        for seed, own in enumerate(numbers):
            own |= {f"error{count}": distance(z[seed], data[seed]), f"energy{count}": energy[seed].item()}
    return numbers


def distance(one: Tensor, other: Tensor) -> float:
    """The energy distance of two samples."""
    return (2 * torch.cdist(one, other).mean() - torch.cdist(one, one).mean() - torch.cdist(other, other).mean()).item()


def number(seed: int, way: Way, name: str) -> float:
    """A number of a seed's paths."""
    return carried(way, seed // DRAWS)[seed % DRAWS][name]


def share(seed: int, way: Way, name: str) -> float:
    """A number of the paths, as a share of that of pairs that are drawn alone."""
    return number(seed, way, name) / number(seed, Way(), name)


def beyond_data(seed: int, way: Way) -> float:
    """How far samples are from data, as a share of how far other data are."""
    return number(seed, way, "error32") / number(seed, way, "data")


SPLINE = Run("spline", "rings")
PLANE = Bed(
    "plane",
    "Densities of the plane: a checkerboard and rings for couplings of two layers, at a variant's own best rate, where "
    "slopes of affine ones lie within e^3; eight normal laws that a small field carries to two moons, at 0.01. Adam "
    "for 400 steps of 128 points, new ones each; the density is that of 2,000 others.",
    (
        CONTEST.known(
            "second-layer",
            "A second layer brings 0.05 nats or more on the rings.",
            SPLINE,
            SPLINE._replace(layers=1),
            by=0.05,
            number="nats",
        ),
    ),
    "Images, many dimensions, and long training.",
)
better = functools.partial(CONTEST.better, bed="plane", number="nats", reach="full")


def less(name: str, says: str, of: str, by: float, number: str) -> Trained:
    """Whether pairs by optimal transport have less of something than pairs that are drawn alone."""
    return Trained(
        name,
        says=says,
        measure=functools.partial(share, way=Way("ot"), name=of),
        wanted=below(by),
        control=functools.partial(share, way=Way(permute=True), name=of),
        against="pairs drawn alone, from another start",
        number=number,
        null=1.0,
        reach="full",
        bed="plane",
    )
