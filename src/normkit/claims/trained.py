"""Networks of digits that are trained first, and then pruned, quantized, merged, or asked about other digits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.training import Bed
from normkit.claims.weight._digits import TRAINING, digits, passed, started
from normkit.claims.weight._digits import trained as train
from normkit.optional import library

TWIN, NOISES, STEPS = 10**6, (0.1, 0.2, 0.3, 0.4, 0.5), 100


class Case(NamedTuple):
    """Weights, and digits with labels: those that they were trained on, and others."""

    weights: list[Tensor]
    x: Tensor
    labels: Tensor
    held: Tensor
    right: Tensor


@functools.cache
def case(seed: int, twin: bool = False, steps: int = STEPS, classes: int = 10) -> Case:
    """A network of a seed, or its twin of another start, trained on the first classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        x, labels = digits()
        torch.manual_seed(seed + TWIN * (1 + twin))
        weights = started()
        first = labels[:TRAINING] < classes
        if steps:
            weights = train(weights, x[:TRAINING][first], labels[:TRAINING][first], steps=steps)
    return Case(weights, x[:TRAINING], labels[:TRAINING], x[TRAINING:], labels[TRAINING:])


def accuracy(weights: Sequence[Tensor], x: Tensor, labels: Tensor) -> float:
    """How many are right, of a hundred."""
    return 100 * (passed(weights, x)[-1].argmax(1) == labels).double().mean().item()


def held_out(own: Case, weights: Sequence[Tensor]) -> float:
    """The accuracy of other weights on digits that the network was not trained on."""
    return accuracy(weights, own.held, own.right)


def slopes(own: Case) -> Sequence[Tensor]:
    """The gradients of the loss on the digits of the training."""
    weights = [weight.clone().requires_grad_() for weight in own.weights]
    with torch.enable_grad():
        return torch.autograd.grad(F.cross_entropy(passed(weights, own.x)[-1], own.labels), weights)


def masks(own: Case, score: str, sparsity: float) -> list[Tensor]:
    """Which weights stay: those of the largest size, of the largest size times gradient, or any."""
    if score == "size":
        sizes = own.weights
    elif score == "gradient":
        sizes = [weight * slope for weight, slope in zip(own.weights, slopes(own), strict=True)]
    else:
        sizes = [torch.rand_like(weight) for weight in own.weights]
    return [*nk.global_magnitude_pruning(*sizes, sparsity=sparsity)]


@functools.cache
def pruned(seed: int, score: str, sparsity: float) -> float:
    """The accuracy after pruning and as many steps again."""
    own = case(seed)
    kept = masks(own, score, sparsity)
    weights = [weight * mask for weight, mask in zip(own.weights, kept, strict=True)]
    return held_out(own, train(weights, own.x, own.labels, kept, steps=STEPS))


def ahead(seed: int, score: str, sparsity: float) -> float:
    """By how many points a score is ahead of size times gradient."""
    return pruned(seed, score, sparsity) - pruned(seed, "gradient", sparsity)


def lost(seed: int, random: bool = True) -> float:
    """The points that a network loses where 90 % of its weights go at random, or to its twin."""
    own = case(seed)
    other = [weight * mask for weight, mask in zip(own.weights, masks(own, "any", 0.9), strict=True)]
    return held_out(own, own.weights) - held_out(own, other if random else case(seed, twin=True).weights)


def rounded(weight: Tensor, up: Callable[[Tensor], Tensor], bits: int) -> Tensor:
    """A weight on a grid of each row, its parts of a step up or down."""
    module = nk.LearnedRounding(weight.shape, bits=bits).double()
    module.fit(weight)
    steps, zero = weight / module.scale[:, None], module.zero_point[:, None]
    places = steps.floor() + up(steps - steps.floor())
    return ((places + zero).clamp(0, 2**bits - 1) - zero) * module.scale[:, None]


def nearest(part: Tensor) -> Tensor:
    """Up where the part is a half or more."""
    return (part >= 0.5).double()


def any_way(part: Tensor) -> Tensor:
    """Up or down by chance."""
    return (torch.rand_like(part) < 0.5).double()


def shifted(x: Tensor) -> list[Tensor]:
    """Digits under four shifts of five strengths each."""
    noises = [torch.randn_like(x) for _ in NOISES]
    return [
        *(x + size * noise for size, noise in zip(NOISES, noises, strict=True)),
        *(x * (1 - size) for size in NOISES),
        *(x + size for size in NOISES),
        *(x * (torch.rand_like(x) > size) for size in NOISES),
    ]


def explained(seed: int, score: Callable[[Tensor], Tensor], twin: bool = False) -> float:
    """The squared correlation of a score of logits with the accuracy, over shifts."""
    own, pairs = case(seed), []
    other = case(seed, twin=True) if twin else own
    with torch.no_grad():
        for x in shifted(own.held):
            pairs.append((score(passed(other.weights, x)[-1]).item(), accuracy(own.weights, x, own.right)))
    return torch.corrcoef(torch.tensor(pairs).mT)[0, 1].item() ** 2


def largest_share(logits: Tensor) -> Tensor:
    """The mean of the largest softmax probability."""
    return logits.softmax(1).max(1).values.mean()


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's."""
    return library("scipy.stats").spearmanr(one.numpy(), other.numpy()).statistic


TRAINED = Bed(
    "trained-digits",
    "Four layers of 96, 64, 32 and 10 units without biases, trained on 500 of scikit-learn's digits by 100 steps of "
    "Adam on all of them at 0.003; the accuracy is that on the other 1,297. What is pruned is trained as long again.",
    (
        Measured(
            "pruned",
            says="Pruning 90 % of the weights at random costs 10 points or more.",
            measure=lost,
            wanted=above(10.0),
            control=functools.partial(lost, random=False),
            against="its twin, which starts from other numbers",
            number="points",
            draws=8,
            rule="mean",
            null=0.0,
        ),
    ),
    "Convolutions, large networks, and data of which not all is learned.",
)
