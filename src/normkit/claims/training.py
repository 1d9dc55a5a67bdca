"""Train small models side by side, one a seed, each as if alone: a bed's runs cost little more than one of them."""

from __future__ import annotations

import functools
import hashlib
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.claims.kinds import Bound, Measured, Trained, above, below
from normkit.lab.plan.models import permute_outputs, same_start

BETAS, EPS = (0.9, 0.999), 1e-8
SEARCH = (1000, 1001, 1002)  # seeds, of which no verdict is
LOWEST, HIGHEST = 1e-4, 10.0
DRAWS = 8
State = dict[str, Tensor]
Scores = Callable[[Any, Sequence[int], Sequence[float]], list[float]]


def started(model: nn.Module, seed: int, permute: bool) -> nn.Module:
    """Return a model with the start of a seed, or with other numbers of the same law."""
    model = same_start(model, seed)
    return permute_outputs(model, seed) if permute else model


def together(
    models: Sequence[nn.Module],
    loss: Callable[..., Tensor],
    batch: Callable[[int], Sequence[Tensor]],
    steps: int,
    rates: Sequence[float],
    *,
    warmup: int = 0,
    falls: bool = True,
    after: Callable[[int, State, State], None] | None = None,
) -> tuple[State, State]:
    """Train with Adam, whose rates fall to 0 by default, and return the weights and the buffers, stacked.

    Args:
        models: of one architecture.
        loss: of a model, as a function of its inputs, and of what a batch has.
        batch: what each model sees at a step, stacked.
        steps: how many.
        rates: of each model.
        warmup: steps in which the rate rises. falls: whether it falls.
        after: called with each step's number, the weights and the buffers.
    """
    weights, buffers = (dict(state) for state in torch.func.stack_module_state(list(models)))
    moments = {name: (torch.zeros_like(weight), torch.zeros_like(weight)) for name, weight in weights.items()}

    def objective(own: State, kept: State, *seen: Tensor) -> Tensor:
        return loss(functools.partial(called, models[0], own, kept), *seen)

    gradients = torch.func.vmap(torch.func.grad(objective), randomness="different")
    for step in range(steps):
        slopes = gradients(weights, buffers, *batch(step))
        share = min(1.0, (step + 1) / (warmup + 1)) * (1 - falls * step / steps)
        corrected = math.sqrt(1 - BETAS[1] ** (step + 1)) / (1 - BETAS[0] ** (step + 1))
        with torch.no_grad():
            for name, weight in weights.items():
                first, second = moments[name]
                first.lerp_(slopes[name], 1 - BETAS[0])
                second.lerp_(slopes[name].square(), 1 - BETAS[1])
                by = share * corrected * torch.tensor(rates).view(-1, *[1] * (weight.dim() - 1))
                weight.sub_(by * first / (second.sqrt() + EPS))
            if after is not None:
                after(step, weights, buffers)
    return {name: weight.detach() for name, weight in weights.items()}, buffers


def called(model: nn.Module, weights: State, buffers: State, *inputs: Tensor) -> Any:
    """Call a model with other weights."""
    return torch.func.functional_call(model, (weights, buffers), inputs)


@torch.no_grad()
def outputs(model: nn.Module, trained: tuple[State, State], *inputs: Tensor) -> Tensor:
    """What each model makes of its own inputs, in evaluation."""
    model.eval()
    return torch.func.vmap(functools.partial(called, model), randomness="different")(*trained, *inputs)


class Contest(NamedTuple):
    """Runs of a bed, each at its own best rate, which seeds of the search alone decide.

    scores: of a run at each pair of a seed and a rate; the larger the better. rates: where a search begins. A run is a
    NamedTuple; what it changes beside the method, ``share`` of the training and ``permute``, keeps the method's rate.
    relative: whether a gain is a share of the other's score, of a hundred.
    """

    scores: Scores
    rates: tuple[float, ...]
    relative: bool = False

    def rate(self, run: Any) -> float:
        """The best rate of the search, which goes on where the best is the first or the last; NaN without an end."""
        return _rate(self.scores, self.rates, run._replace(share=1.0, permute=False))

    def point(self, run: Any, seed: int) -> float:
        """The score at the best rate; as many seeds are trained at once as a look has."""
        return _points(self._replace(relative=False), run, seed // DRAWS)[seed % DRAWS]

    def gain(self, seed: int, run: Any, over: Any) -> float:
        """By how much a run is better than another one of the same seed."""
        one, other = self.point(run, seed), self.point(over, seed)
        return 100 * (one - other) / abs(other) if self.relative else one - other

    def better(self, name: str, says: str, bed: str, run: Any, over: Any, by: float, **options: Any) -> Trained:
        """A claim that a run is better by so much; the control is a twin of the other one."""
        return self._claim(name, says, bed, run, over, above(by), over._replace(permute=True), TWIN, **options)

    def not_worse(self, name: str, says: str, bed: str, run: Any, over: Any, than: float, **options: Any) -> Trained:
        """A claim that a run is not worse by more; the control has half of the training."""
        options |= {"null": None}
        return self._claim(name, says, bed, run, over, above(-than), over._replace(share=0.5), HALF, **options)

    def as_good(self, name: str, says: str, bed: str, run: Any, over: Any, by: float, **options: Any) -> Trained:
        """A claim of lying no farther apart; the control has half of the training."""
        options |= {"rule": "within"}
        return self._claim(name, says, bed, run, over, below(by), over._replace(share=0.5), HALF, **options)

    def _claim(self, name: str, says: str, bed: str, run: Any, over: Any, wanted: Bound, control: Any, against: str,
               draws: int = DRAWS, **options: Any) -> Trained:  # fmt: skip
        return Trained(
            name,
            says=says,
            measure=functools.partial(self.gain, run=run, over=over),
            wanted=wanted,
            control=functools.partial(self.gain, run=control, over=over),
            against=against,
            **{"number": "percent" if self.relative else "points", "draws": draws, "bed": bed, **options},
        )

    def known(self, name: str, says: str, better: Any, worse: Any, by: float, draws: int = DRAWS,
              number: str = "") -> Measured:  # fmt: skip
        """What a bed must see, and must not see between twins."""
        return Measured(
            name,
            says=says,
            measure=functools.partial(self.gain, run=better, over=worse),
            wanted=above(by),
            control=functools.partial(self.gain, run=better, over=better._replace(permute=True)),
            against="its twin, which starts from other numbers",
            number=number or ("percent" if self.relative else "points"),
            draws=draws,
            rule="mean",
            null=0.0,
        )


TWIN = "the second of the two, from another start"
HALF = "the second of the two, with half of its training"


@functools.cache
def _rate(scores: Scores, rates: tuple[float, ...], run: Any) -> float:
    means: dict[float, float] = {}
    further = list(rates)
    while further:
        results = scores(run, SEARCH * len(further), [rate for rate in further for _ in SEARCH])
        for at, rate in enumerate(further):
            own = results[at * len(SEARCH) : (at + 1) * len(SEARCH)]
            means[rate] = statistics.fmean(own) if all(map(math.isfinite, own)) else -math.inf
        best = max(means, key=means.__getitem__)
        if min(means) < best < max(means):
            return best
        further = [best / 3 if best == min(means) else best * 3]
        if not LOWEST <= further[0] <= HIGHEST:
            break
    return math.nan


@functools.cache
def _points(contest: Contest, run: Any, block: int) -> list[float]:
    rate, seeds = contest.rate(run), range(block * DRAWS, (block + 1) * DRAWS)
    return [math.nan] * DRAWS if math.isnan(rate) else contest.scores(run, seeds, [rate] * DRAWS)


class Bed(NamedTuple):
    """A place where models are trained.

    name; what: the model, the data and the training. known: what it must see, with a twin as the control. blind: what
    it cannot see.
    """

    name: str
    what: str
    known: tuple[Measured, ...]
    blind: str

    @property
    def key(self) -> str:
        """A hash of what the bed is and must see: numbers of another bed of this name are not those of this one."""
        about = (self.name, self.what, *((known.says, str(known.wanted)) for known in self.known))
        return hashlib.sha256(repr(about).encode()).hexdigest()[:10]
