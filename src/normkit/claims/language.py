"""A decoder of two layers that reads CPython's documentation letter by letter."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.claims.training import Bed, Contest, outputs, started, together
from normkit.lab.plan.data import text_of
from normkit.transformer.model import Encoder

LETTERS, LENGTH, DIM, STEPS, BATCH, WARMUP, HELD = 40, 32, 32, 150, 8, 15, 256


class Run(NamedTuple):
    """A norm by name, and what is changed beside it: the share of the steps, and the start."""

    norm: str = "layernorm"
    share: float = 1.0
    permute: bool = False


class Reader(nn.Module):
    """Score the next letter behind each."""

    def __init__(self, run: Run):
        super().__init__()
        self.embedding, self.output = nn.Embedding(LETTERS, DIM), nn.Linear(DIM, LETTERS)
        self.layers = Encoder(vocab=None, dim=DIM, depth=2, heads=2, causal=True, norm=run.norm)

    def forward(self, letters: Tensor) -> Tensor:
        """Return scores of (B, T)."""
        return self.output(self.layers(DIM**0.5 * self.embedding(letters)))


@functools.cache
def letters() -> tuple[Tensor, Tensor]:
    """The most frequent letters of the text as numbers, and the last tenth of them."""
    raw = text_of("python-docs").lower()
    frequent = "".join(sorted(letter for letter, _ in Counter(raw).most_common(LETTERS)))
    numbers = torch.tensor([frequent.index(letter) for letter in raw if letter in frequent])
    return numbers[: len(numbers) * 9 // 10], numbers[len(numbers) * 9 // 10 :]


def rows_at(numbers: Tensor, places: Tensor) -> Tensor:
    """Cut rows at places."""
    return numbers[places[..., None] + torch.arange(LENGTH + 1)]


def loss(model, rows: Tensor) -> Tensor:
    """The mean loss of each next letter."""
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Train, and return the loss on what was held out, its sign turned."""
    first, held = letters()
    models = [started(Reader(run), seed, run.permute) for seed in seeds]
    steps = int(STEPS * run.share)
    picks = [torch.randint(len(first) - LENGTH, (STEPS, BATCH), generator=torch.Generator().manual_seed(seed))
             for seed in seeds]  # fmt: skip
    places = torch.stack(picks, 1)
    trained = together(models, loss, lambda step: (rows_at(first, places[step]),), steps, rates, warmup=WARMUP)
    rows = rows_at(held, torch.linspace(0, len(held) - LENGTH - 1, HELD).long())
    answers = outputs(models[0], trained, rows[:, :-1].expand(len(models), -1, -1))
    return [-F.cross_entropy(own.flatten(0, 1), rows[:, 1:].flatten()).item() for own in answers]


CONTEST = Contest(scores, (3e-3, 1e-2, 3e-2), relative=True)
LAYERNORM = Run()
LANGUAGE = Bed(
    "language",
    "A decoder of two pre-norm layers of width 32 that reads 150 batches of 8 rows of 32 letters of CPython's "
    "documentation; Adam with a warm-up, whose rate falls to 0, at a variant's own best rate. The loss is that on the "
    "last tenth of the text.",
    (
        CONTEST.known(
            "fewer-steps",
            "Half of the steps cost 1 % of the loss or more.",
            LAYERNORM,
            LAYERNORM._replace(share=0.5),
            by=1.0,
        ),
    ),
    "Depth, long training, and whatever shows after more than a few hundred steps.",
)
as_good = functools.partial(CONTEST.as_good, bed="language")
better = functools.partial(CONTEST.better, bed="language")
not_worse = functools.partial(CONTEST.not_worse, bed="language")
