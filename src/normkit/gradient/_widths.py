"""Learning rates and initial scales that carry over from one width to another: muP, and the spectral condition."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.gradient._based import of_torch
from normkit.gradient._matrices import Hidden, matrix_shape
from normkit.gradient._muon import FACTORS, factor
from normkit.parameters import MATRICES, Owner, Roles, Row, holders

PARAMETRIZATIONS = ("mup", "spectral")
READERS = (*MATRICES, "head")  # whose rate depends on how many features they read
# optimizers whose steps have entries of about the rate, whatever the gradient's length
ENTRYWISE = {"adam", "adamw", "adamax", "nadam", "radam", "rmsprop", "adagrad", "lion", "signum", "adamp", "grams"}
ENTRYWISE |= {"stable-adamw", "stable-spam", "blockwise-lr", "cautious", "cautious-weight-decay"}
PLAIN = {"sgd", "asgd"}  # whose steps are the gradient's
TABLES = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True)
class Width:
    """What a width does to a parameter: the features it makes and reads, the multiple of its rate, its first scale.

    ``scale`` is the root mean square that it is to start with; None: that which it has.
    """

    made: int
    read: int
    rate: float
    scale: float | None


def fans(role: str, shape: Sequence[int], turned: bool = False) -> tuple[int, int]:
    """How many features a parameter makes, and of how many; ``turned``: it is stored as (in, out).

    >>> fans("matrix", (8, 4)), fans("embedding", (9, 4)), fans("bias", (8,)), fans("conv", (8, 4, 3, 3))
    ((8, 4), (4, 1), (8, 1), (8, 36))
    """
    if role not in READERS:
        return (shape[-1] if len(shape) else 1), 1
    rows, columns = shape[-2:] if len(shape) == 2 or role == "experts" else (shape[0], math.prod(shape[1:]))
    return (columns, rows) if turned else (rows, columns)


class Widths:
    """The rates and scales of a model's parameters under a parametrization.

    ``products``: the weights that a run has seen as a side of a product, and whether they are stored as (in, out).
    """

    def __init__(
        self,
        parametrization: str,
        optimizer: str,
        model: nn.Module,
        rows: Roles,
        base: Any,
        lr: float | None,
        products: Mapping[int, bool],
    ):
        self.parametrization = check.choice("param_groups", "parametrization", parametrization, PARAMETRIZATIONS)
        self.optimizer, self.entry, self.steps = optimizer, *_steps(optimizer)
        self.defaults = {name: p.default for name, p in inspect.signature(self.entry).parameters.items()}
        self.lr = self.defaults["lr"] if lr is None else check.number("param_groups", "lr", lr, 0.0)
        owners = holders(model)
        self.turned = {key for key, turned in products.items() if turned}
        self.turned |= {key for key, own in owners.items() if any(map(_stores_columns, own))}
        self.rows: dict[str, Width] = {}
        if parametrization == "mup":
            self.base_weights = _base_weights(base, rows)
        elif isinstance(base, nn.Module):
            raise TypeError('param_groups: base of parametrization="spectral" is a width, not a model')
        else:
            self.base = check.size("param_groups", "base", base)
        for row in rows:
            kinds = {isinstance(module, TABLES) for module, _ in owners[id(row.parameter)]}
            makes_scores = len(kinds) == 2 or id(row.parameter) in products
            if row.role == "embedding" and row.why != "as given" and makes_scores:
                self._refuse_tied(row)

    def _refuse_tied(self, row: Row) -> None:
        """Refuse a table that makes scores as well: an embedding keeps its scale and rate, a head does not."""
        base = self.base_weights[row.name].shape[-1] if self.parametrization == "mup" else self.base
        times = row.parameter.shape[-1] / base
        if times != 1:
            raise ValueError(
                f"param_groups: {row.name} is both embedding and head, which {self.parametrization} scales apart; "
                f'untie them, or divide the scores by {times:g} yourself and say override={{"{row.name}": "embedding"}}'
            )

    def settings(self, row: Row, own: Mapping[str, Any]) -> dict[str, Any]:
        """A group's settings with the rate, the decay and the factor of a parameter; it is kept in :attr:`rows`."""
        steps, adam = self.steps, {}
        if steps == "orthogonal" and not own["use_muon"]:
            steps, adam = "entrywise", self.entry.adam
        rule = {"adjust_lr": own.get("adjust_lr", self.defaults["adjust_lr"])} if steps == "orthogonal" else {}
        if self.parametrization == "spectral" and rule:
            rule = {"adjust_lr": "rms_to_rms"}
        p, turned = row.parameter, id(row.parameter) in self.turned
        made, read = fans(row.role, p.shape, turned)
        rate = self._rate(row, made, read, steps, rule.get("adjust_lr"))
        self.rows[row.name] = Width(made, read, rate, self._scale(row, made, read))
        lr = own.get("lr", adam.get("lr", self.lr))
        decay = own.get("weight_decay", adam.get("weight_decay", self.defaults.get("weight_decay", 0.0)))
        # what a step decays is the rate times the decay, which stays that of the base
        kept = {"weight_decay": decay / rate} if decay and rate != 1 else {}
        return {**own, **rule, "lr": lr * rate, **kept}

    def _rate(self, row: Row, made: int, read: int, steps: str, rule: str | None) -> float:
        if self.parametrization == "spectral":
            if steps == "orthogonal":
                return 1.0
            is_reader = row.role in READERS
            if steps == "entrywise":
                return self.base / read if is_reader else 1.0
            return made / (read if is_reader else self.base)
        base, makes, reads = self._growth(row, made, read)
        if steps == "orthogonal":
            grown = factor(rule, *matrix_shape(row.parameter)) / factor(rule, *matrix_shape(base))
            return math.sqrt(makes / reads) / grown
        return 1 / reads if steps == "entrywise" else makes / reads

    def _growth(self, row: Row, made: int, read: int) -> tuple[Tensor, float, float]:
        """The parameter of the base, and how many times as many features this one makes and reads."""
        base = self.base_weights[row.name]
        base_made, base_read = fans(row.role, base.shape, id(row.parameter) in self.turned)
        return base, made / base_made, read / base_read

    def _scale(self, row: Row, made: int, read: int) -> float | None:
        if row.parameter.dim() < 2:
            return None
        if self.parametrization == "spectral":
            return min(1.0, math.sqrt(made / read)) / math.sqrt(read)
        base, makes, reads = self._growth(row, made, read)
        if base.is_meta:
            return None
        return root_mean_square(base) * min(1.0, math.sqrt(makes / reads)) / math.sqrt(reads)


def root_mean_square(x: Tensor) -> float:
    """The root of the mean of the squares of a tensor.

    >>> root_mean_square(torch.tensor([3.0, -3.0, 3.0, 3.0]))
    3.0
    """
    return float(torch.linalg.vector_norm(x.detach(), dtype=torch.float64)) / math.sqrt(max(1, x.numel()))


def _steps(name: str) -> tuple[Any, str]:
    """The class of an optimizer, and what its steps are like: ``"entrywise"``, ``"plain"`` or ``"orthogonal"``."""
    entry: Any = catalog.card(name).entry if name in catalog.methods() else of_torch().get(name)
    if name in ENTRYWISE:
        return entry, "entrywise"
    if name in PLAIN:
        return entry, "plain"
    if inspect.isclass(entry) and issubclass(entry, Hidden):
        rule = inspect.signature(entry).parameters.get("adjust_lr")
        if rule is not None and rule.default in FACTORS:
            return entry, "orthogonal"
    raise ValueError(
        f"param_groups: parametrization is for optimizers whose steps have a known size, not for {name or None!r}; "
        f"they are {', '.join(sorted(ENTRYWISE | PLAIN))}, and muon and its kin that take adjust_lr"
    )


def _base_weights(base: Any, rows: Roles) -> dict[str, Tensor]:
    """The parameters of the model of the base width, by the names of this one's."""
    if not isinstance(base, nn.Module):
        raise TypeError(
            'param_groups: base of parametrization="mup" is the model at the base width, such as build(64), '
            f"not {base!r}"
        )
    weights: dict[str, Tensor] = dict(base.named_parameters(remove_duplicate=False))
    for row in rows:
        if row.name not in weights or weights[row.name].dim() != row.parameter.dim():
            description = f"of shape {tuple(weights[row.name].shape)}" if row.name in weights else "not in it"
            raise ValueError(
                f"param_groups: base is another model than this one at another width: {row.name} of shape "
                f"{tuple(row.parameter.shape)} is {description}"
            )
    return weights


def _stores_columns(owner: Owner) -> bool:
    module, _ = owner
    return type(module).__name__ == "Conv1D" or isinstance(module, nn.modules.conv._ConvTransposeNd)
