"""Connections of several residual streams, and the heads that make one of them, found by what they compute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from normkit.residual.stream import Placement
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import (
    NEAR,
    agree,
    build,
    call,
    carry,
    double_numbers,
    epsilons,
    far_apart,
    inputs,
    match_of,
    named_so,
    plain_numbers,
)
from normkit.surgery.recognition.match import Match

USUAL = 1e-6  # eps


def find(
    module: nn.Module, work: nn.Module, matrix: str, shape: tuple[int, ...], vectors: Mapping[str, Tensor]
) -> Match | None:
    """Return what connection or head a module is; ``work`` is a copy in float64 with drawn numbers."""
    rows, width = shape
    n = round(math.sqrt(rows + 1)) - 1
    if n > 1 and n * (n + 2) == rows and width % n == 0:
        names = _by_size(vectors, {"bias": rows, "scale": 3})
        if names is not None:
            return _connection(module, work, {"weight": matrix, **names}, n, width // n, True)
    if rows > 3 and rows % 2 == 0 and width % (rows // 2) == 0:
        names = _by_size(vectors, {"bias": rows, "scale": 2})
        if names is not None:
            return _connection(module, work, {"weight": matrix, **names}, rows // 2, width // (rows // 2), False)
    if rows > 1 and width % rows == 0:
        names = _by_size(vectors, {"bias": rows, "scale": 1})
        if names is not None:
            return _head(module, work, {"weight": matrix, **names}, rows, width // rows)
    return None


def _by_size(vectors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> dict[str, str] | None:
    """The vectors of these sizes, where each is the only one."""
    mapping: dict[str, str] = {}
    for ours, size in sizes.items():
        names = [name for name, t in vectors.items() if t.numel() == size]
        if len(names) != 1 or names[0] in mapping.values():
            return None
        mapping[ours] = names[0]
    return mapping


def _connection(
    module: nn.Module, work: nn.Module, carried: dict[str, str], n: int, dim: int, mixes: bool
) -> Match | None:
    def read(outputs: list[Tensor], x: Tensor) -> list[Tensor] | None:
        by = ({(n, n): None} if mixes else {}) | {(n,): None, (dim,): None}
        for t in outputs:
            key = (n, n) if t.shape == (*x.shape[:-2], n, n) else tuple(t.shape[-1:])
            if key not in by or by[key] is not None or t.shape[: x.dim() - 2] != x.shape[:-2]:
                return None
            by[key] = t  # type: ignore[assignment]
        return None if any(t is None for t in by.values()) or n == dim else list(by.values())  # type: ignore[arg-type]

    def ours_of(ours: nn.Module, x: Tensor) -> list[Tensor]:
        read, mix, write = ours(x)
        return [*([mix] if mixes else []), write, (read.unsqueeze(-1) * x).sum(-2)]

    x = next(inputs((n, dim), torch.float64))
    outputs = call(work.eval(), x)
    if outputs is None or read(outputs, x) is None:
        return None
    rounds = [v for v in named_so(plain_numbers(module, int), "iter", 20) if 0 < v <= 1000] if mixes else [0]
    most = {k: v for k, v in plain_numbers(module, float).items() if "magn" in k.lower() and v > 0}
    of_division, of_norm = epsilons(module, USUAL), dict.fromkeys([USUAL, *epsilons(module)])
    magnitudes = dict.fromkeys([2.0, *most.values()])
    larger = double_numbers(work)
    for iterations, eps, norm_eps, magnitude in itertools.product(rounds, of_division, of_norm, magnitudes):
        kwargs = {"dim": dim, "streams": n, "iterations": iterations, "eps": eps, "norm_eps": norm_eps}
        kwargs |= {"magnitude": magnitude}

        def built(theirs: nn.Module, write_eps: float, kwargs: dict = kwargs) -> nn.Module:
            connection = Placement("mhc", **kwargs, write_eps=write_eps).get_submodule("connection")
            return carry(connection.to(next(iter(specimen.tensors(theirs).values())).dtype), carried, theirs)

        far, least = min((far_apart(work, built(work, v), ours_of, read, x), v) for v in (0.0, eps))
        if max(far, far_apart(larger, built(larger, least), ours_of, read, x)) > NEAR[torch.float64]:
            continue
        error = agree(work, built(work, least), ours_of, read, (n, dim))
        if error:
            return match_of(module, "mhc", kwargs | {"write_eps": least}, carried, error, built(module, least))
    return None


def _head(module: nn.Module, work: nn.Module, carried: dict[str, str], n: int, dim: int) -> Match | None:
    def read(outputs: list[Tensor], x: Tensor) -> list[Tensor] | None:
        return outputs if len(outputs) == 1 and outputs[0].shape == (*x.shape[:-2], dim) else None

    of_shares, of_norm = epsilons(module, USUAL), [USUAL, *epsilons(module)]
    for eps, norm_eps in itertools.product(of_shares, dict.fromkeys(of_norm)):
        kwargs = {"dim": dim, "streams": n, "eps": eps, "norm_eps": norm_eps}
        ours = build("mhc-head", kwargs, carried, work)
        error = {} if ours is None else agree(work, ours, lambda ours, x: [ours(x)], read, (n, dim))
        if error:
            return match_of(module, "mhc-head", kwargs, carried, error)
    return None
