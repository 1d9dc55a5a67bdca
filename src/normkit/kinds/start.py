"""How a method starts anew: a second one is built, and its numbers are copied."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

if TYPE_CHECKING:
    from normkit.kinds.module import Method


def own_parts(method: Method) -> Iterator[tuple[str, nn.Module]]:
    """A method and the parts that it made which have no ``reset_parameters``, each by its path."""
    waiting: list[tuple[str, nn.Module]] = [("", method)]
    taken = _modules_taken(method)
    while waiting:
        path, part = waiting.pop()
        yield path, part
        for name, child in part.named_children():
            if name != "parametrizations" and name not in taken and not hasattr(child, "reset_parameters"):
                waiting.append((f"{path}.{name}" if path else name, child))
        taken = {}


def _modules_taken(method: Method) -> dict[str, nn.Module]:
    """The modules that a method was built with, such as the sublayers of a block, by the argument's name."""
    names = [name for name in method.card.signature.parameters if name not in method.arguments]
    return {name: value for name in names if isinstance(value := getattr(method, name, None), nn.Module)}


@torch.no_grad()
def start_anew(method: Method) -> None:
    """Give the parameters and buffers of a method, and of its :func:`own_parts`, the values of one newly built."""
    parts = list(own_parts(method))
    if not any(_tensors(part) or parametrize.is_parametrized(part) for _, part in parts):
        return
    new = method.card.entry(**method.arguments, **copy.deepcopy(_modules_taken(method)), device="cpu")
    new.double()  # some values are more exact there
    pairs = [(part, name, start) for path, part in parts for name, start in _starts(method, path, part, new)]
    for part, name, start in pairs:
        own = getattr(part, name)
        if start is None or own.shape != start.shape:
            part._buffers[name] = None if start is None else start.to(own)
        elif parametrize.is_parametrized(part, name):
            setattr(part, name, start.to(own))
        else:
            own.copy_(_laid_out_as(own, start))


def _starts(method: Method, path: str, part: nn.Module, new: nn.Module) -> Iterator[tuple[str, Tensor | None]]:
    """What each tensor of a part starts as; one that has been taken away stays so."""
    same = dict(new.named_modules()).get(path, nn.Module())
    started = {**same._parameters, **same._buffers}
    parametrized = [name for name in started if parametrize.is_parametrized(part, name)]
    for name in [*_tensors(part), *parametrized]:
        own, start = getattr(part, name), started.get(name)
        may_change = name in part._buffers and name in started  # such as one that data made
        if not may_change and (start is None or start.shape != own.shape):
            raise ValueError(
                f"{type(method).__name__}: reset_parameters cannot start {path and f'{path}.'}{name} of shape "
                f"{tuple(own.shape)}: a new {type(new).__name__} has "
                + ("none" if start is None else f"one of shape {tuple(start.shape)}")
            )
        yield name, start


def _tensors(part: nn.Module) -> dict[str, Tensor]:
    return {name: own for name, own in [*part._parameters.items(), *part._buffers.items()] if own is not None}


def _laid_out_as(own: Tensor, start: Tensor) -> Tensor:
    """The same numbers, on all processes those of the first, where a tensor is spread over them."""
    from normkit.ops.sharded import is_sharded

    if not is_sharded(own):
        return start
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(start, own.device_mesh, own.placements)  # type: ignore[attr-defined]
