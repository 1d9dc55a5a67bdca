"""Networks of digits from two starts each: whether the features of one mean anything to the other."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.images import SPLIT, digits
from normkit.claims.kinds import Measured, above
from normkit.claims.training import Bed, outputs, together
from normkit.lab.plan.models import same_start

DRAWS, STEPS, BATCH, RATE, HIDDEN, CODE, ANCHORS, OTHER = 8, 300, 64, 3e-3, 64, 16, 64, 10**6


class Pair(NamedTuple):
    """What is trained from two starts: a head "learned" or "simplex", or codes "absolute" or "relative"."""

    kind: str
    twin: bool = False


class Classifier(nn.Module):
    """Nine features of a digit, and scores by a head."""

    def __init__(self, kind: str):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 9))
        self.output = nk.SimplexClassifier(10) if kind == "simplex" else nn.Linear(9, 10, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and the loss."""
        features = self.layers(x)
        return features, F.cross_entropy(self.output(features), labels)


class Autoencoder(nn.Module):
    """A code of a digit, absolute or relative to those of anchors, and the digit again."""

    def __init__(self, kind: str):
        super().__init__()
        self.relative = kind == "relative"
        self.encoder = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CODE))
        width = ANCHORS if self.relative else CODE
        self.decoder = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 64))

    def forward(self, x: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the code and the error."""
        code = self.encoder(x)
        code = nk.relative_representations(code, self.encoder(anchors)) if self.relative else code
        return code, F.mse_loss(self.decoder(code), x)


@functools.cache
def trained(pair: Pair) -> tuple[Tensor, Tensor, Tensor, Tensor, nn.Module, tuple]:
    """Train two of each seed; return codes of digits seen and held out, (2 seeds, n, d), labels, and the models."""
    x, labels = digits()
    x, starts = (
        x.flatten(1),
        [seed + OTHER * other + 7 * OTHER * pair.twin for other in (0, 1) for seed in range(DRAWS)],
    )
    chances = [torch.Generator().manual_seed(seed) for _ in (0, 1) for seed in range(DRAWS)]
    rows = torch.stack([torch.randperm(len(x), generator=chance) for chance in chances])
    first, held = rows[:, :SPLIT], rows[:, SPLIT:]
    kind = Classifier if pair.kind in ("learned", "simplex") else Autoencoder
    models = [same_start(kind(pair.kind), seed) for seed in starts]
    orders = [torch.randint(SPLIT, (STEPS, BATCH), generator=torch.Generator().manual_seed(start)) for start in starts]
    picks = torch.stack([own[order] for own, order in zip(first, orders, strict=True)])
    beside = labels[picks] if kind is Classifier else x[first[:, None, :ANCHORS].expand(-1, STEPS, -1)]
    state = together(
        models,
        lambda model, x, more: model(x, more)[1],
        lambda step: (x[picks[:, step]], beside[:, step]),
        STEPS,
        [RATE] * len(models),
    )
    more = [labels[which] if kind is Classifier else x[first[:, :ANCHORS]] for which in (first, held)]
    codes = [outputs(models[0], state, x[which], also)[0] for which, also in zip((first, held), more, strict=True)]
    return codes[0], codes[1], labels[first], held, models[0], state


@functools.cache
def neighbours(pair: Pair, across: bool) -> list[float]:
    """How many held-out digits have the label of their nearest neighbour in the one, or the other network."""
    first, held, labels, rows, *_ = trained(pair)
    hits, right = [], digits()[1]
    for seed in range(DRAWS):
        near = torch.cdist(held[seed], first[seed + DRAWS * across]).argmin(1)
        hits.append(100 * (labels[seed][near] == right[rows[seed]]).float().mean().item())
    return hits


@functools.cache
def errors(pair: Pair, across: bool) -> list[float]:
    """The error of digits that the one, or the other network's decoder makes of codes."""
    _, held, _, rows, model, (weights, _) = trained(pair)
    x, errors_of = digits()[0].flatten(1), []
    for seed in range(DRAWS):
        own = {name.removeprefix("decoder."): weight[seed + DRAWS * across] for name, weight in weights.items()
               if name.startswith("decoder.")}  # fmt: skip
        with torch.no_grad():
            decoded = torch.func.functional_call(model.get_submodule("decoder"), own, (held[seed],))
        errors_of.append(F.mse_loss(decoded, x[rows[seed]]).item())
    return errors_of


def compatible(seed: int, pair: Pair) -> float:
    """By how many points neighbours across networks are better than with a head that is learned."""
    return neighbours(pair, True)[seed] - neighbours(Pair("learned"), True)[seed]


def lost(seed: int, across: bool = True, twin: bool = False) -> float:
    """How many points neighbours in another network lose to those in the own."""
    return neighbours(Pair("learned"), False)[seed] - neighbours(Pair("learned", twin), across)[seed]


def stitched(seed: int, pair: Pair, over: Pair, across: bool) -> float:
    """The error of another network's decoder, as a share of a second one's."""
    return errors(pair, True)[seed] / errors(over, across)[seed]


FEATURES = Bed(
    "features",
    "Digits from two starts and two orders each: a network of one hidden layer and nine features with a head, or an "
    "autoencoder with a code of 16. Adam at 0.003 for 300 steps, its rate falling to 0.",
    (
        Measured(
            "another-network",
            says="Nearest neighbours in another network's features lose 20 points or more.",
            measure=lost,
            wanted=above(20.0),
            control=functools.partial(lost, across=False, twin=True),
            against="neighbours in its own features, of a twin",
            number="points lost",
            draws=8,
            rule="mean",
            null=0.0,
        ),
    ),
    "Large networks, and features of data that neither has seen.",
)
