"""The training during which norms go: batch by batch by a timetable, and on from where it was interrupted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from normkit import check, files, prints
from normkit.columns import number_of
from normkit.surgery.edits import inside
from normkit.surgery.removal.fading import Fading, is_tokens
from normkit.surgery.removal.order import Step
from normkit.surgery.statistics.batch_statistics import feed, field_of, scores_of

Loss = Callable[[nn.Module, Any], Tensor]
LAST_LR = 0.5  # of the first
SAVED_EVERY = 10
NAMES = {"table": "start, gaps or which norms go"}  # of a recipe's settings whose names are not those of arguments


class Progress(NamedTuple):
    """How far a run is: the steps that are done, the last loss, and the norms that are still there."""

    step: int
    steps: int
    loss: float
    norms: int

    def __str__(self) -> str:
        left = f"   {number_of(self.norms, 'norm')} left" if self.norms else ""
        return f"step {self.step} of {self.steps}   loss {self.loss:.4f}{left}"


@dataclass(frozen=True)
class Weaning:
    """How many steps there are, how they learn, and which norm goes when; ``auxiliary`` is the other loss's factor."""

    steps: int
    lr: float
    weight_decay: float
    auxiliary: float
    table: Sequence[Step] = ()

    def __post_init__(self):
        check.size("remove", "steps", self.steps)
        check.number("remove", "lr", self.lr, 0.0, open_low=True)
        check.number("remove", "weight_decay", self.weight_decay, 0.0)
        check.number("remove", "auxiliary", self.auxiliary, 0.0)
        if self.table and self.table[-1].at >= self.steps:
            raise ValueError(
                f"remove: with this start and these gaps the norms are gone after {self.table[-1].at} steps, and steps "
                f"is {self.steps}"
            )

    def rate(self, step: int) -> float:
        """The learning rate of a step: half a cosine, down to half of what it was."""
        low = LAST_LR * self.lr
        return low + (self.lr - low) * (1 + math.cos(math.pi * step / self.steps)) / 2


def next_token(model: nn.Module, batch: Any) -> Tensor:
    """The loss that a model returns, or that of predicting each token of (B, T) from those before."""
    output = feed(model, batch)
    if isinstance(batch, Mapping):
        own = field_of(output, "loss")
        if own is None:
            raise ValueError("remove: the model returns no loss of such a batch: give it labels, or pass loss=")
        return own
    tokens = batch[0] if isinstance(batch, tuple | list) else batch
    scores = scores_of(output)
    if not is_tokens(tokens) or not torch.is_tensor(scores) or scores.ndim != 3:
        raise ValueError("remove: only of tokens (B, T) and scores (B, T, words) the loss is known; pass loss=")
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long())


def mean_loss(model: nn.Module, batches: Sequence[Any], loss: Loss) -> float:
    """The loss of a model in evaluation, the mean over batches."""
    model.eval()
    with torch.no_grad():
        return sum(float(loss(model, batch)) for batch in batches) / len(batches)


def _plain_words(part: nn.Module) -> tuple[str, dict[str, Any]]:
    return type(part).__qualname__, {name: value for name, value in vars(part).items() if type(value) in prints.PLAIN}


def origin_of(model: nn.Module, data: Iterable[Any], loss: Loss | None, separator: int | None) -> dict[str, Any]:
    """What a run begins with besides its plan, as short prints: the model, data, loss and separator.

    Of a loader the samples are read where they lie: to go over it would draw others.
    """
    parts = {name: _plain_words(inside(part)[1]) for name, part in model.named_modules()}
    tensors = {name: (parameter, parameter.requires_grad) for name, parameter in model.named_parameters()}
    samples = (data.dataset, data.batch_size) if isinstance(data, DataLoader) else data
    return {
        "model": prints.print_of_value([parts, tensors, dict(model.named_buffers())]),
        "data": prints.print_of_value(samples, prints.MOST),
        "loss": prints.print_of(loss) if loss else "",
        "separator": separator,
    }


def spread_loss(norm: Fading) -> Tensor:
    """How far the deviations of a norm's last input are from those of positions that are neither first nor separate."""
    assert norm.spread is not None, "the norm was not called"
    plain = norm.spread if norm.kinds is None else norm.spread[norm.kinds == 0]
    return (norm.spread - plain.detach().mean()).square().mean()


class Run:
    """One training of a model, during which the ``norms`` of the plan's timetable go."""

    def __init__(
        self,
        model: nn.Module,
        plan: Weaning,
        loss: Loss,
        log: Callable[[Progress], object],
        norms: Mapping[str, Fading] | None = None,
        last: Sequence[Fading] = (),
        place: Path | None = None,
        origin: Mapping[str, Any] | None = None,
    ):
        self.model, self.plan, self.loss, self.log, self.place = model, plan, loss, log, place
        self.recipe = {**asdict(plan), "table": [tuple(step) for step in plan.table], **(origin or {})}
        self.norms, self.last = norms or {}, last
        self.losses: list[float] = []
        learned = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(learned, plan.lr, weight_decay=plan.weight_decay)

    def through(self, data: Iterable[Any]) -> list[float]:
        """Train to the end, from the beginning or from where it was; return the loss of every step."""
        if self.place is not None and self.place.is_file():
            self._resume(self.place)
        else:
            self._measure(next(iter(data)))
        self.model.train()
        batches = itertools.chain.from_iterable(itertools.repeat(data))
        for batch in itertools.islice(batches, len(self.losses), self.plan.steps):
            step = len(self.losses)
            self._remove(step)
            self.losses.append(self._step(step, batch))
            here = sum(not norm.gone for norm in self.norms.values())
            self.log(Progress(step + 1, self.plan.steps, self.losses[-1], here))
            if self.place is not None and (len(self.losses) % SAVED_EVERY == 0 or step + 1 == self.plan.steps):
                self._save(self.place)
        return self.losses

    def _measure(self, batch: Any) -> None:
        """Let every norm begin with the deviations that it has."""
        for norm in self.norms.values():
            norm.measure()
        mean_loss(self.model, [batch], self.loss)
        for norm in self.norms.values():
            norm.follow()

    def _remove(self, step: int) -> None:
        for at, what, site in self.plan.table:
            if at == step and what == "norm":
                self.norms[site].remove()
            elif at == step and what == "values":
                self.norms[site].remove_values()
            elif at == step:
                for norm in self.norms.values():
                    norm.drop(what)

    def _step(self, step: int, batch: Any) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate(step)
        loss = self.loss(self.model, batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ValueError(
                f"remove: the loss is {value} at step {step}, and the model is as it was; lower lr, or larger gaps"
            )
        for norm in self.last:
            loss = loss + self.plan.auxiliary * spread_loss(norm)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return value

    def _save(self, place: Path) -> None:
        state = {
            "recipe": self.recipe,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        with files.writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
        with files.beside(place) as temporary:
            torch.save(state, temporary)

    def _resume(self, place: Path) -> None:
        try:
            files.check_archive(place)
            state = torch.load(place, weights_only=True)
            recipe, self.losses = state["recipe"], list(state["losses"])
        except Exception as error:  # a damaged archive can raise nearly anything
            why = str(error).partition("\n")[0] or type(error).__name__
            raise ValueError(f"remove: {place} is damaged: {why}; delete it, or name another folder") from error
        if others := [NAMES.get(name, name) for name in self.recipe if recipe.get(name, ...) != self.recipe[name]]:
            raise ValueError(
                f"remove: {place} is of a removal with other settings ({', '.join(others)}); name another folder"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
