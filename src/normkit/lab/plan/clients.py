"""Many owners of data: the samples of each client and of the server, and how much each class counts for each client.

>>> shares(torch.tensor([0, 0, 0, 1, 1, 1]), 2, "dirichlet:100", 1)
[tensor([2, 3, 5]), tensor([0, 1, 4])]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from normkit.lab.plan.data import Data, Images, Tokens, generator
from normkit.lab.plan.samples import BySample
from normkit.lab.plan.settings import SPLITS, Settings, spell
from normkit.lab.plan.variants import Variant
from normkit.surgery.statistics.federated import local_entries

SERVER = 0.05  # the share of the training data that the server has for itself, whatever the method makes of it
TRIES = 1000  # draws until no client is left with fewer than LEAST samples
LEAST = 2
SERVERS, CLIENTS, LOOKS = 0, 1, 2  # streams of random numbers


@dataclass(frozen=True)
class Client:
    """What an owner of data has.

    data: its batches; count: of how many samples; classes: the share of each class among them, None without labels.
    view: what its inputs go through.
    """

    data: Data
    count: int
    classes: Tensor | None
    view: Callable[[Any], Any] | None = None

    def train(self, seed: int, step: int) -> Any:
        """Return the batch of a step, as this client sees it."""
        return self.view_of(self.data.train(seed, step))

    def view_of(self, batch: Any) -> Any:
        """Return a batch as this client sees it."""
        return batch if self.view is None else self.view(batch)


def read(split: str) -> tuple[str, float]:
    """Return the kind of a split and its number.

    >>> read("dirichlet:0.3"), read("even")
    (('dirichlet', 0.3), ('even', 0.0))
    """
    kind, _, number = split.partition(":")
    if kind not in SPLITS:
        raise ValueError(f"{spell('split')} must be one of {', '.join(SPLITS)}, not {split!r}")
    try:
        value = 0.0 if kind == "even" else float(number)
    except ValueError:
        value = math.nan
    fits = not number if kind == "even" else 0 < value < math.inf and (kind != "classes" or value.is_integer())
    if not fits:
        examples = {"even": "'even', without a number", "classes": "'classes:2', with a whole number above 0"}
        like = examples.get(kind, f"'{kind}:0.3', with a number above 0")
        raise ValueError(f"{spell('split')} must be like {like}, not {split!r}")
    return kind, value


def divide(data: Any, clients: int, split: str, seed: int) -> tuple[list[Client], list[Any]]:
    """Return the clients, and the server's own batches; both depend on the seed alone."""
    labels, count = labels_of(data), size_of(data)
    data = data.without_lone_samples() if isinstance(data, BySample) else data
    order = torch.arange(count)
    if not isinstance(data, Tokens):
        order = torch.randperm(count, generator=generator(seed, SERVERS))
    own = max(1, round(count * SERVER))
    kind, value = read(split)
    if LEAST * clients > count - own:
        raise ValueError(f"{spell('clients')} {clients}: {count} samples are too few for so many")
    if kind in ("even", "looks"):
        rows = list(order[:-own].tensor_split(clients))
    elif labels is None:
        raise ValueError(
            f"{spell('split')} {split!r} needs samples with a class each, and there are none; take "
            f"{spell('split')} even"
        )
    else:
        rest = order[:-own].sort().values
        rows = [rest[part] for part in shares(labels[rest], clients, split, seed)]
    looks = [look(value, seed, k) if kind == "looks" else None for k in range(clients)]
    parts = [
        Client(data.part(part), len(part), _frequencies(labels, part), view)
        for part, view in zip(rows, looks, strict=True)
    ]
    server = data.part(order[-own:])
    batches = max(1, own // (getattr(server, "batch", None) or own))
    return parts, [server.train(seed, step) for step in range(1, batches + 1)]


def _frequencies(labels: Tensor | None, rows: Tensor) -> Tensor | None:
    if labels is None:
        return None
    return torch.bincount(labels[rows], minlength=int(labels.max()) + 1).double() / len(rows)


def check(variant: Variant, model: nn.Module, data: Any, settings: Settings) -> None:
    """Refuse data that cannot be divided as is asked for, and a client that would keep nothing."""
    parts, _ = divide(data, settings.clients, settings.split, 1)
    parts[0].train(1, 1)
    if variant.keeps and not local_entries(model):
        raise ValueError("fedbn keeps batch norms with their clients, and the model has none")


def labels_of(data: Any) -> Tensor | None:
    """Return the class of every sample that is trained on, None where there are none."""
    labels = data.labels if isinstance(data, Images | BySample) else None
    return None if labels is None or labels.min() < 0 else labels


def size_of(data: Any) -> int:
    """Return how many samples, or tokens, are trained on; data that come as a stream cannot be divided."""
    if isinstance(data, Images):
        return len(data.labels)
    if isinstance(data, BySample):
        return len(data.order.rows)
    if isinstance(data, Tokens):
        return len(data.tokens)
    raise ValueError(
        f"{spell('federated')} divides data by sample: hand in a data set, or a loader whose samples have numbers"
    )


def shares(labels: Tensor, clients: int, split: str, seed: int) -> list[Tensor]:
    """Return the samples of each client, by their classes."""
    kind, value = read(split)
    chance = numpy.random.default_rng((seed, CLIENTS))
    draw = _by_class if kind == "dirichlet" else _by_few_classes
    for _ in range(TRIES):
        parts = draw(labels, clients, value, chance)
        if min(map(len, parts)) >= LEAST:
            return parts
    raise ValueError(
        f"{spell('split')} {split!r} leaves one of {clients} clients with fewer than {LEAST} samples each time"
    )


def _by_class(labels: Tensor, clients: int, value: float, chance: numpy.random.Generator) -> list[Tensor]:
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    for label in labels.unique():
        rows = torch.from_numpy(chance.permutation((labels == label).nonzero().flatten().numpy()))
        share = chance.dirichlet([value] * clients)
        cuts = (share.cumsum()[:-1] * len(rows)).round().astype(int).tolist()
        for k, part in enumerate(rows.tensor_split(cuts)):
            parts[k].append(part)
    return [torch.cat(pieces).sort().values for pieces in parts]


def _by_few_classes(labels: Tensor, clients: int, value: float, chance: numpy.random.Generator) -> list[Tensor]:
    """Sort by class, cut into so many pieces a client, and deal these out."""
    mixed = torch.from_numpy(chance.permutation(len(labels)))
    pieces = mixed[labels[mixed].argsort(stable=True)].tensor_split(clients * int(value))
    dealt = chance.permutation(len(pieces)).reshape(clients, -1)
    return [torch.cat([pieces[at] for at in hand]).sort().values for hand in dealt]


def look(deviation: float, seed: int, client: int) -> Callable[[Any], Any]:
    """Return what a client's inputs go through: a gain and an offset, drawn once."""
    gain, offset = (deviation * torch.randn(2, generator=generator(seed, LOOKS, client))).tolist()
    gain = math.exp(gain)

    def distort(batch: Any) -> Any:
        pair = isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[0], Tensor)
        if not (pair and batch[0].is_floating_point()):
            raise ValueError(
                f"{spell('split')} looks: batches must be pairs of inputs, which are real numbers, and labels"
            )
        return gain * batch[0] + offset, batch[1]

    return distort
