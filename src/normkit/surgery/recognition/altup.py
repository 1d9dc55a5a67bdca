"""Gemma 3n's forms of the residual stream, AltUp's updates and LAuReL's map, found by what they compute."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from normkit.residual.norms import fits_a_stream
from normkit.residual.stream import Placement
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import agree, carry, is_matrix, match_of
from normkit.surgery.recognition.inner import Within, norms_within, only_norm
from normkit.surgery.recognition.match import Match

PARTS, MOST = 6, 2**24  # modules, and numbers


def may_be(module: nn.Module) -> bool:
    """Whether it has few parts, one of them with vectors alone, and the matrices of one of both."""
    if specimen.has_more_parts(module, PARTS) or not any(norms_within(module)):
        return False
    tensors = specimen.tensors(module)
    if any(t.is_meta or t.numel() > MOST for t in tensors.values()):
        return False
    return _thin(tensors) is not None or _updates(tensors) is not None


def find(module: nn.Module, work: nn.Module) -> Match | None:
    """Return which of both a module is; ``work`` is a copy in float64 with drawn numbers."""
    tensors = specimen.tensors(module)
    if (thin := _thin(tensors)) is not None:
        return _laurel(module, work, *thin)
    updates = _updates(tensors)
    return None if updates is None else _altup(module, work, updates)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in tensors.items() if is_matrix(t)}


def _thin(tensors: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """Two matrices whose product is square and of low rank, down and up."""
    names = sorted((shape, name) for name, shape in _shapes(tensors).items())
    if len(names) != 2:
        return None
    (first, down), (second, up) = names
    return (down, up) if first == second[::-1] and first[0] < first[1] else None


def _updates(tensors: Mapping[str, Tensor]) -> dict[str, str] | None:
    """The matrices that route by, predict by and correct by, of n streams: (n, dim), (n², n) and (n, n)."""
    names = {shape: name for name, shape in _shapes(tensors).items()}
    square = [n for n, m in names if n == m]
    if len(names) != 3 or len(square) != 1 or len(_shapes(tensors)) != 3:
        return None
    n = square[0]
    dim = next((m for k, m in names if k == n and m != n), None)
    if dim is None or (n * n, n) not in names:
        return None
    return {"router": names[n, dim], "prediction": names[n * n, n], "correction": names[n, n]}


def _norm(module: nn.Module, dim: int) -> Within | None:
    """The one norm within, if it fits a stream of a width."""
    norm = only_norm(module, dim)
    return norm if norm is not None and fits_a_stream(norm.card, [*norm.match.kwargs]) else None


def _build_part(kwargs: Mapping[str, Any], part: str, carried: Mapping[str, str], theirs: nn.Module) -> nn.Module:
    """The part of a placement that a module is, with its numbers."""
    name = "laurel" if part == "laurel" else "altup"
    placement = Placement(name, **kwargs, sublayer="attention").get_submodule(part)
    own = next(iter(specimen.tensors(theirs).values()))
    return carry(placement.to(own.dtype), carried, theirs)


def _laurel(module: nn.Module, work: nn.Module, down: str, up: str) -> Match | None:
    rank, dim = specimen.tensors(module)[down].shape
    if (norm := _norm(module, dim)) is None:
        return None
    carried = {"down": down, "up": up, **norm.carried("norm")}
    if len(carried) != len(specimen.tensors(module)):
        return None
    kwargs = {"dim": dim, "rank": rank, "norm": norm.words}

    def read(outputs: list[Tensor], x: Tensor) -> list[Tensor] | None:
        return outputs if len(outputs) == 1 and outputs[0].shape == x.shape else None

    error = agree(work, _build_part(kwargs, "laurel", carried, work), lambda ours, x: [ours(x)], read, (dim,))
    if not error:
        return None
    return match_of(module, "laurel", kwargs, carried, error, _build_part(kwargs, "laurel", carried, module))


class Layer(nn.Module):
    """A user's predicting and correcting, called as ours are: with the streams on the last axis but one."""

    def __init__(self, module: nn.Module, predict: str, correct: str, scale: str | None):
        super().__init__()
        self.module, self.names, self.scale = module, (predict, correct), scale

    def forward(self, streams: Tensor) -> list[Tensor]:
        """Predict, correct by what a sublayer may have made, and scale that, if it does."""
        predict, correct = (getattr(self.module, name) for name in self.names)
        first, active = streams.movedim(-2, 0), sublayer(streams)
        both = [predict(first.clone()), correct(first.clone(), active.clone())]
        scaled = [] if self.scale is None else [self.module(active)]
        return [*(part.movedim(0, -2) for part in both), *scaled]


def sublayer(streams: Tensor) -> Tensor:
    """What a sublayer may make of the first stream."""
    return streams[..., 0, :].flip(-1) - 0.3 * streams[..., -1, :]


def _altup(module: nn.Module, work: nn.Module, matrices: Mapping[str, str]) -> Match | None:
    tensors = specimen.tensors(module)
    n, dim = tensors[matrices["router"]].shape
    if (norm := _norm(module, dim)) is None:
        return None
    carried = {**matrices, **norm.carried("norm")}
    work, left = _with_constants(work, module), tensors.keys() - {*carried.values(), *_constants(module)}
    if len(left) > 1 or any(tensors[name].shape != (dim,) for name in left):
        return None
    scale = next(iter(left), None)
    kwargs = {"dim": dim, "streams": n, "norm": norm.words}
    ours = _build_part(kwargs, "altup", carried, work)

    def steps(ours: Any, streams: Tensor) -> list[Tensor]:
        active = sublayer(streams)
        both = [ours.predict(streams), ours.correct(streams, active)]
        held = {} if scale is None else specimen.tensors(work)
        return [*both, *(active * one.to(active.dtype) for name, one in held.items() if name == scale)]

    def read(outputs: list[Tensor], streams: Tensor) -> list[Tensor] | None:
        return outputs if all(part.shape == streams.shape for part in outputs[:2]) else None

    for predict, correct in itertools.product(_methods(module, 1), _methods(module, 2)):
        error = agree(Layer(work, predict, correct, scale), ours, steps, read, (n, dim))
        if error:
            how = f"by its {predict} and {correct}"
            return match_of(module, "altup", kwargs, carried, error, _build_part(kwargs, "altup", carried, module), how)
    return None


def _constants(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of one number."""
    return {name: t for name, t in module.named_buffers() if t.is_floating_point() and t.numel() == 1}


def _with_constants(work: nn.Module, module: nn.Module) -> nn.Module:
    """A copy with drawn numbers, but with the module's own constants."""
    work = copy.deepcopy(work)
    for name, constant in _constants(module).items():
        work.get_buffer(name).copy_(constant)
    return work


def _methods(module: nn.Module, takes: int) -> Iterator[str]:
    """The names of the methods, besides forward, that are called with so many arguments."""
    known = {*dir(nn.Module)}
    for name in dir(type(module)):
        function = inspect.getattr_static(type(module), name)
        if name not in known and name[:1] != "_" and inspect.isfunction(function) and _needs(function) == takes + 1:
            yield name


def _needs(function: Callable[..., Any]) -> int:
    return sum(p.default is p.empty for p in inspect.signature(function).parameters.values())
