"""Norms of matrices side by side with spd_learn's, in training, on batches of (64, 8, 20, 20).

What spd_learn has not races against its authors' computation in plain PyTorch; subspaces are the same count of matrices
(20, 10).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.bench import _authors, _steps, cases, timing
from normkit.bench._steps import COLUMNS as COLUMNS
from normkit.bench._steps import LEGEND as LEGEND

TAKES = ("names", "sizes")
SIZE = (64, 8, 20, 20)
METHODS: dict[str, dict[str, Any]] = {
    "liebn:metric=AIM": {"metric": "AIM"},
    "liebn:metric=LEM": {"metric": "LEM"},
    "liebn:metric=LCM": {"metric": "LCM"},
    "riemannian-batchnorm": {},
    "gbw-batchnorm": {},
    "gyrobn-grassmann": {},
}
THEIRS, AUTHORS = "spd_learn", "the authors'"


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race every norm, or those named, at every size."""
    rows: list[dict[str, Any]] = []
    for name in options.names:
        check.choice("bench", "a norm that races", name, sorted({other.partition(":")[0] for other in METHODS}))
    for size in cases.sizes(options.sizes) if options.sizes else [SIZE]:
        if len(size) < 3 or size[-1] != size[-2]:
            raise ValueError(f"--sizes: matrices are (..., n, n), such as 64x8x20x20, not {size}")
        for name in METHODS:
            if options.names and name.partition(":")[0] not in options.names:
                continue
            print(f"training {name} {'x'.join(map(str, size))}", file=sys.stderr)
            rows += race(name, size, options.repeats, clock)
    return {"rows": _steps.missing(rows, THEIRS), "failed": {}}


def race(name: str, size: tuple[int, ...], repeats: int, clock: timing.Clock) -> list[dict[str, Any]]:
    """Hold one race; all take the matrices of all channels as one batch."""
    torch.manual_seed(0)
    plain, n, count = name.partition(":")[0], size[-1], torch.Size(size[:-2]).numel()
    if plain == "gyrobn-grassmann":
        x = torch.linalg.qr(torch.randn(count, 1, n, n // 2)).Q
        ours = catalog.create(plain, n, p=n // 2)
        modules: dict[str, nn.Module] = {_steps.OURS: ours, AUTHORS: _authors.GyroGrassmann(n, n // 2)}
    else:
        data = torch.randn(count, n, 2 * n)
        x = data @ data.mT / (2 * n)
        modules = {_steps.OURS: catalog.create(plain, n, **METHODS[name])} | others(name, n)
    calls = {who: step(module, x) for who, module in modules.items()}
    return _steps.race(name, "x".join(map(str, size)), "training", calls, repeats, clock)


def others(name: str, n: int) -> dict[str, nn.Module]:
    """The same norm of others."""
    if name == "gbw-batchnorm":
        return {AUTHORS: _authors.GBW(n)}
    module = _steps.install("spd_learn.modules")
    if module is None:
        return {}
    plain, _, metric = name.partition(":metric=")
    if plain == "liebn":
        return {THEIRS: module.SPDBatchNormLie(n, metric=metric)}
    return {THEIRS: module.SPDBatchNormMean(n)} if plain == "riemannian-batchnorm" else {}


def step(module: nn.Module, x: Tensor) -> Callable[[], object]:
    """A forward and backward pass."""
    points, sent = x.clone().requires_grad_(), torch.randn_like(x)

    def call() -> None:
        module.zero_grad()
        points.grad = None
        (module(points) * sent).sum().backward()

    return call
