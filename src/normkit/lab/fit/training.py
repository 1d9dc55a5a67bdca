"""One flow, trained on nine tenths of the data but what tells when to stop, and measured on the rest."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from normkit.choice import parsed
from normkit.density import Flow, flow
from normkit.lab.fit.table import Observations, require_spread

CHECKS = 40  # how often the validation part is looked at in a run
FIRST = 4096  # samples that a flow's norms are set from


class Parts(NamedTuple):
    """The samples that are learned from, those that tell when a flow is best, and those that it is measured on."""

    train: Tensor
    valid: Tensor
    test: Tensor


class Fitted(NamedTuple):
    """A trained flow, how it was built, its curve (step, training and validation bits), and its test bits."""

    name: str
    seed: int
    flow: Flow
    built: dict[str, Any]
    curve: list[tuple[int, float, float]]
    bits: Tensor
    seconds: float

    @property
    def steps(self) -> tuple[int, int]:
        """At which step it was best, which is how it was kept, and at which the run ended."""
        return min(self.curve, key=lambda point: point[2])[0], self.curve[-1][0]


def split(data: Observations, seed: int = 0) -> Parts:
    """Split samples by chance in 80, 10 and 10 %; bytes become numbers of [0, 1) by even noise."""
    values, order = _shuffled(data, seed)
    tenth = len(values) // 10
    return Parts(values[order[2 * tenth :]], values[order[:tenth]], values[order[tenth : 2 * tenth]])


def _shuffled(data: Observations, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return samples, and their places in the order of chance, of which the first tenth is the validation part."""
    generator = torch.Generator().manual_seed(seed)
    values = numbers_of(data, generator)
    return values, torch.randperm(len(values), generator=generator)


def require_spread_of(parts: Parts, data: Observations) -> None:
    """Refuse a table with a column that has a density as a whole, and none where a flow learns its scale."""
    for name, column in zip(data.names, parts.train[:FIRST].numpy().T, strict=True) if data.values.ndim == 2 else ():
        require_spread(f"column {name!r} of {len(column)} rows that are learned from", name, column, column)


def numbers_of(data: Observations, generator: torch.Generator) -> Tensor:
    """Return the samples in float32; bytes become numbers of [0, 1) by even noise, categories of [k, k + 1)."""
    values = torch.as_tensor(np.ascontiguousarray(data.values)).to(torch.float32)
    if data.categories:
        places = [data.names.index(name) for name in data.categories]
        values[:, places] += torch.rand((len(values), len(places)), generator=generator)
    return (values + torch.rand(values.shape, generator=generator)) / 256 if data.bytes else values


def bits(log_prob: Tensor, event: Sequence[int], whole: bool) -> Tensor:
    """Return bits for each number of a sample; of bytes, for each byte."""
    return -log_prob / (math.prod(event) * math.log(2)) + (8 if whole else 0)


def normal_law(parts: Parts, data: Observations) -> tuple[str, Tensor]:
    """Return the name and the test bits of a normal law with the moments of what is learned from: the least to beat.

    Its covariances are left out where the validation part has fewer bits so, as of few rows of many numbers. Worked out
    of columns of deviation 1, so that the columns' units change nothing.
    """
    train, valid, test = (part.flatten(1).double() for part in parts)
    middle, variance = train.mean(0), train.var(0)
    deviation = variance.where(variance > 0, 1e-9 * variance.mean()).sqrt()  # a pixel of an image may never change
    train, valid, test = ((part - middle) / deviation for part in (train, valid, test))
    zeros = torch.zeros_like(middle)
    plain = "normal law without covariances" if len(zeros) > 1 else "normal law"
    laws: dict[str, Distribution] = {plain: Independent(Normal(zeros, zeros + 1), 1)}
    if 1 < len(zeros) < len(train):  # fewer rows have no inverse covariance
        covariance = torch.cov(train.mT)
        covariance.diagonal().fill_(1 + 1e-9)
        laws["normal law"] = MultivariateNormal(zeros, covariance)
    name = max(laws, key=lambda name: laws[name].log_prob(valid).mean().item())
    log_prob = laws[name].log_prob(test) - deviation.log().sum()
    return name, bits(log_prob, parts.test.shape[1:], data.bytes)


def fit(
    data: Observations,
    name: str,
    *,
    seed: int = 0,
    steps: int = 1000,
    batch: int = 256,
    lr: float = 2e-3,
    patience: int = 0,
    **options: Any,
) -> Fitted:
    """Train a flow, and keep it as it was where the validation part had the fewest bits.

    name: of the flow, with its own arguments after a colon.
    patience: steps without fewer bits of that part after which a run ends; 0 for never.
    """
    parts, began = split(data), time.perf_counter()
    torch.manual_seed(seed)
    plain, own = parsed(name)
    built = {"name": plain, "event": list(parts.train.shape[1:]), **options, **own}
    model = flow(**built).initialize(parts.train[:FIRST])
    optimizer = torch.optim.Adam(model.parameters(), lr)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    curve: list[tuple[int, float, float]] = []
    least, best, best_step, losses = math.inf, copy.deepcopy(model.state_dict()), 0, []
    for step in range(1, steps + 1):
        rows = parts.train[torch.randint(len(parts.train), (min(batch, len(parts.train)),))]
        losses.append(_step(model, optimizer, rows, data.bytes))
        rate.step()
        if step % max(1, steps // CHECKS) == 0 or step == steps:
            held = bits_of(model, parts.valid, data).mean().item()
            curve.append((step, sum(losses) / len(losses), held))
            losses = []
            if held < least:
                least, best, best_step = held, copy.deepcopy(model.state_dict()), step
            elif patience and step - best_step >= patience:
                break
    if not math.isfinite(least):
        each, learned = bits_of(model, parts.valid, data), all(math.isfinite(loss) for _, loss, _ in curve)
        why = f"its bits are {held} from step {curve[0][0]} on; try a lower --lr"
        if learned and each.isfinite().any():
            why = f"it has no finite density of {_farthest(data, parts, int(each.argmax()))}"
        raise ValueError(f"flow {name!r}, seed {seed}: {why}")
    model.load_state_dict(best)
    return Fitted(name, seed, model, built, curve, bits_of(model, parts.test, data), time.perf_counter() - began)


def _farthest(data: Observations, parts: Parts, place: int) -> str:
    """Name the row at a place of the validation part, and its number that is farthest from what is learned from."""
    row, train = parts.valid[place].flatten().double(), parts.train.flatten(1).double()
    off = (row - train.mean(0)).abs() / train.std(0)
    at = int(off.nan_to_num().argmax())
    number = 1 + int(_shuffled(data)[1][place])
    column = f" in column {data.names[at]!r}" if data.values.ndim == 2 else ""
    return (
        f"row {number}, which holds {row[at].item():.3g}{column} and lies far from the rows that are learned from; "
        "mend it or leave it out"
    )


def _step(model: Flow, optimizer: torch.optim.Optimizer, rows: Tensor, whole: bool) -> float:
    """Take a step down the bits of some samples, and return them."""
    loss = bits(model.log_prob(rows), rows.shape[1:], whole).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def bits_of(model: Flow, rows: Tensor, data: Observations) -> Tensor:
    """Return the bits of each sample, infinite where a flow has no finite density of it."""
    log_prob = torch.cat([model.log_prob(some) for some in rows.split(1024)])
    return unlikely(bits(log_prob, rows.shape[1:], data.bytes).double())


def unlikely(each: Tensor) -> Tensor:
    """Return bits with infinity in place of what is no number, so that such a sample is the least likely."""
    return each.where(each.isfinite(), math.inf)


@torch.no_grad()
def ranks(model: Flow, rows: Tensor) -> Tensor:
    """Return, for each sample, how much of the law is nearer to its middle: even in [0, 1] where it is right."""
    z = torch.cat([model(some)[0] for some in rows.split(1024)]).flatten(1).double()
    return torch.special.gammainc(torch.tensor(z.shape[1] / 2).double(), z.square().sum(1) / 2)
