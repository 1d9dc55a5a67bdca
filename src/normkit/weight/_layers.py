"""The layers of a model that hold a weight: which ones are meant, and a table of what was done to them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils import parametrize

from normkit.catalog import Choice
from normkit.columns import aligned
from normkit.kinds import Parametrization
from normkit.parameters import buffers_apart, own_parameter
from normkit.where import Where
from normkit.where import selects as meant

USUAL = (nn.Linear, _ConvNd)
LAZY = "its shape is not known before the first pass"


class Row(NamedTuple):
    """A layer, and why nothing was done to it; an empty reason: it was."""

    layer: str
    type: str
    shape: tuple[int, ...]
    left: str


def row_of(name: str, module: nn.Module, value: Tensor, result: object) -> Row:
    """The row of a layer: ``result`` is what was made for it, or why nothing was."""
    shape = () if nn.parameter.is_lazy(value) else tuple(value.shape)
    return Row(name, type(module).__name__, shape, result if isinstance(result, str) else "")


class Table(list[Row]):
    """What was done to each layer of a model, and what was left and why; prints as a table."""

    def __init__(self, did: str, rows: Sequence[Row]):
        super().__init__(rows)
        self.did = did

    @property
    def done(self) -> list[str]:
        """The names of the layers that something was done to."""
        return [row.layer for row in self if not row.left]

    @property
    def left(self) -> dict[str, str]:
        """The names of the others, each with the reason."""
        return {row.layer: row.left for row in self if row.left}

    def __str__(self) -> str:
        """Write a line for each layer."""
        cells = [(r.layer or "(model)", r.type, "x".join(map(str, r.shape)), r.left or self.did) for r in self]
        return "\n".join([*aligned(cells), f"{self.did}: {len(self.done)} of {len(self)} layers"])


def selects(where: Where, name: str, module: nn.Module) -> bool:
    """Whether a layer is meant; linear layers and convolutions where nothing is said."""
    return isinstance(module, USUAL) if where is None else meant(where, name, module)


def is_vector(value: Tensor) -> bool:
    """Whether a tensor is known to have fewer than two axes."""
    return not nn.parameter.is_lazy(value) and value.dim() < 2


def named_outright(where: Where, name: str) -> bool:
    """Whether a layer is meant by its own name, not by a pattern that others fit too."""
    each = [where] if isinstance(where, str) else where if isinstance(where, Sequence) else []
    return name in each


def weights(model: nn.Module, tensor: str = "weight") -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Every layer that holds such a tensor, trained or not, once."""
    for name, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList | Parametrization):
            continue
        value = own_parameter(module, tensor)
        if value is None and parametrize.is_parametrized(module, tensor):
            with buffers_apart(module):  # one of spectral norm moves its vectors where it is read
                value = getattr(module, tensor)
        if isinstance(value, Tensor):
            yield name, module, value


def without_weight(model: nn.Module) -> Iterator[Row]:
    """Every layer whose matrices have other names, such as a GRU, as a row that says which."""
    for name, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList | Parametrization):
            continue
        if "weight" in module._parameters or parametrize.is_parametrized(module, "weight"):
            continue
        matrices = {key: own for key, own in module._parameters.items() if own is not None and not is_vector(own)}
        if matrices:
            first = next(iter(matrices.values()))
            known = ", ".join([*matrices][:3] + ["..."] * (len(matrices) > 3))
            yield row_of(name, module, first, f"has no weight; tensor= may be {known}")


def outputs_on(module: nn.Module) -> int:
    """The axis of a layer's weight that counts its outputs: 1 of transposed convolutions and of GPT-2's Conv1D."""
    return int(isinstance(module, _ConvTransposeNd) or type(module).__name__ == "Conv1D")


def holders(model: nn.Module, tensor: str) -> dict[int, list[tuple[str, nn.Module]]]:
    """By its id, which layers hold each parameter of that name."""
    held: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        value = own_parameter(module, tensor)
        if value is not None and not isinstance(module, parametrize.ParametrizationList | Parametrization):
            held.setdefault(id(value), []).append((name, module))
    return held


def misfit(held: Mapping[int, list[tuple[str, nn.Module]]], module: nn.Module, value: Tensor) -> str:
    """Why no map of a weight can be put on a layer, or an empty string; ``held`` is of :func:`holders`."""
    if nn.parameter.is_lazy(value):
        return LAZY
    if is_vector(value):
        return "a vector"
    shared = [name for name, other in held.get(id(value), ()) if other is not module]
    return f"shared with {', '.join(shared)}" if shared else ""


def options_for(choice: Choice, module: nn.Module, name: str, value: Tensor) -> dict[str, Any] | str:
    """The arguments that build a map of this layer's weight, or why there is none.

    An option that is a function is called with the layer's name and its weight.
    """
    options = {k: v(name, value) if inspect.isroutine(v) else v for k, v in choice.arguments.items()}
    if outputs_on(module) and getattr(choice.card.entry, "per_output", False):
        if "dim" not in choice.card.signature.parameters:
            return "its outputs are on axis 1"
        options.setdefault("dim", 1)
    if "shape" in choice.card.signature.parameters:
        options["shape"] = tuple(value.shape)
    return options
