"""Random labels of the same digits, new ones again and again: whether a network goes on learning."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.images import digits
from normkit.claims.kinds import Measured, Trained, above, below
from normkit.claims.measures import slope
from normkit.claims.training import DRAWS, SEARCH, Bed, Contest, State, called, outputs, started, together

TASKS, STEPS, SAMPLES, HIDDEN, STRENGTH = 20, 40, 96, 32, 1e-2


class Run(NamedTuple):
    """A norm, a penalty by name and its strength, whether weights are projected, and whether each task begins anew."""

    norm: str = "none"
    penalty: str = "none"
    strength: float = 0.0
    project: bool = False
    anew: bool = False
    share: float = 1.0
    permute: bool = False


class Net(nn.Module):
    """Two hidden layers; return scores and what is added to the loss."""

    def __init__(self, run: Run):
        super().__init__()
        norm = (lambda: nk.LayerNorm(HIDDEN)) if run.norm == "layernorm" else nn.Identity
        bias = run.norm == "none"
        layers: list[nn.Module] = []
        for width in (64, HIDDEN):
            layers += [nn.Linear(width, HIDDEN, bias=bias), norm(), nn.ReLU()]
        self.layers, self.penalties = nn.Sequential(*layers, nn.Linear(HIDDEN, 10)), nn.ModuleList()
        self.run = run

    def start(self) -> nn.Module:
        """Set what penalties compare with."""
        for name, weight in list(self.layers.named_parameters()):
            if self.run.penalty == "wasserstein":
                penalty = nk.WassersteinInitRegularizer(weight.shape)
                penalty.reset(weight)
                self.penalties.append(penalty)
            elif self.run.penalty == "spectral" and weight.dim() == 2:
                self.penalties.append(nk.SpectralRegularizer(weight.shape))
            elif self.run.penalty == "l2-init":
                self.register_buffer(f"start_{name.replace('.', '_')}", weight.detach().clone())
        return self

    def added(self) -> Tensor:
        """What is added to the loss, before its strength."""
        weights = dict(self.layers.named_parameters())
        if self.run.penalty == "wasserstein":
            parts = [penalty(weight) for penalty, weight in zip(self.penalties, weights.values(), strict=True)]
        elif self.run.penalty == "spectral":
            linears = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
            parts = [penalty(one.weight, one.bias) for penalty, one in zip(self.penalties, linears, strict=True)]
        else:
            starts = dict(self.named_buffers())
            apart = [weight - starts.get(f"start_{name.replace('.', '_')}", 0) for name, weight in weights.items()]
            parts = [one.square().sum() for one in apart]
        return torch.stack(parts).sum()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Score the digits."""
        scores = self.layers(x)
        return scores, self.run.strength * self.added() if self.run.strength else scores.new_zeros(())


def accuracies(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> Tensor:
    """How many labels of each task are learned at its end, of a hundred, (models, tasks)."""
    x = digits()[0].flatten(1)[:SAMPLES].expand(len(seeds), -1, -1)
    models = [cast(Net, started(Net(run), seed, run.permute)).start() for seed in seeds]
    labels = torch.stack([torch.randint(10, (TASKS, SAMPLES), generator=torch.Generator().manual_seed(seed))
                          for seed in seeds])  # fmt: skip
    first = {name: torch.stack([dict(model.named_parameters())[name].detach() for model in models])
             for name, _ in models[0].named_parameters()}  # fmt: skip
    hidden = [name for name in ("layers.0.weight", "layers.3.weight") if run.project]
    lengths = {name: torch.linalg.vector_norm(first[name], dim=(1, 2)).unsqueeze(1) for name in hidden}
    curve, steps = [], int(STEPS * run.share)

    def after(step: int, weights: State, buffers: State) -> None:
        for name in hidden:
            weights[name].copy_(projected(lengths[name], weights[name]))
        if (step + 1) % steps == 0:
            scores = outputs(models[0], (weights, buffers), x)[0]
            models[0].train()
            curve.append(100 * (scores.argmax(-1) == labels[:, step // steps]).float().mean(1))
            if run.anew:
                for name, weight in weights.items():
                    weight.copy_(first[name])

    def loss(model, x: Tensor, labels: Tensor) -> Tensor:
        scores, more = model(x)
        return F.cross_entropy(scores, labels) + more

    together(models, loss, lambda step: (x, labels[:, step // steps]), TASKS * steps, rates, after=after, falls=False)
    return torch.stack(curve, 1)


def projected(lengths: Tensor, weights: Tensor) -> Tensor:
    """Weights (models, out, in) at lengths (models, 1)."""
    method = nk.NormalizeAndProject(weights.shape[1:])
    return torch.func.vmap(lambda norm, weight: called(method, {}, {"norm": norm}, weight))(lengths, weights)


@functools.cache
def curves(run: Run, seeds: tuple[int, ...], rates: tuple[float, ...]) -> Tensor:
    """The same, kept."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return accuracies(run, seeds, rates)


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """The mean over all tasks."""
    return curves(run, tuple(seeds), tuple(rates)).mean(1).tolist()


CONTEST = Contest(scores, (1e-3, 3e-3, 1e-2))
PLAIN, LAYERNORM = Run(), Run("layernorm")


def curve(run: Run, seed: int) -> Tensor:
    """A seed's accuracies over the tasks, at the run's own best rate."""
    seeds = range(seed - seed % DRAWS, seed - seed % DRAWS + DRAWS)
    return curves(run, tuple(seeds), (CONTEST.rate(run),) * DRAWS)[seed % DRAWS]


def trend(seed: int, run: Run) -> float:
    """How many points a task the accuracy rises, or falls."""
    return slope(range(TASKS), curve(run, seed).tolist())


def last(seed: int, run: Run) -> float:
    """The accuracy of the last five tasks."""
    return curve(run, seed)[-5:].mean().item()


@functools.cache
def mean_of(run: Run) -> float:
    """The mean over seeds of the search, at the run's own best rate."""
    return sum(scores(run, SEARCH, [CONTEST.rate(run)] * len(SEARCH))) / len(SEARCH)


@functools.cache
def tuned(penalty: str) -> Run:
    """A penalty at its best strength: from the middle, on to the side where it is better."""
    best = Run(penalty=penalty, strength=STRENGTH)
    for factor in (10.0, 0.1):
        start = best
        while mean_of(further := best._replace(strength=best.strength * factor)) > mean_of(best):
            best = further
        if best != start:
            break
    return best


def ahead(seed: int, penalty: str, over: str, permute: bool = False) -> float:
    """By how many points a penalty is ahead of another one in the last tasks."""
    one, other = (PLAIN if name == "none" else tuned(name) for name in (penalty, over))
    return last(seed, one._replace(permute=permute)) - last(seed, other)


def lessened(seed: int, run: Run) -> float:
    """How many points a task the trend is above half of that without a norm."""
    return trend(seed, run) - trend(seed, PLAIN) / 2


TASKS_BED = Bed(
    "tasks",
    "A network of two hidden layers of 32, and 20 tasks one after another: new random labels of the same 96 digits, "
    "40 steps of Adam on all of them, at a variant's best rate. The accuracy is that on the labels at a task's end.",
    (
        Measured(
            "plasticity-is-lost",
            says="Without a norm the accuracy falls by a quarter of a point a task, or more.",
            measure=functools.partial(trend, run=PLAIN),
            wanted=below(-0.25),
            control=functools.partial(trend, run=PLAIN._replace(anew=True)),
            against="a network that begins each task anew",
            number="points a task",
            draws=8,
            rule="mean",
            null=0.0,
        ),
    ),
    "Reinforcement learning, hundreds of tasks, and large networks.",
)


def better(name: str, says: str, penalty: str, over: str, by: float, against: str) -> Trained:
    """Whether a penalty is ahead of another one by so many points in the last tasks."""
    return Trained(
        name,
        says=says,
        measure=functools.partial(ahead, penalty=penalty, over=over),
        wanted=above(by),
        control=functools.partial(ahead, penalty=over, over=over, permute=True),
        against=against,
        number="points",
        bed="tasks",
    )
