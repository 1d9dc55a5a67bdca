"""Flows side by side with those of zuko, nflows and normflows: a training step of whole flows, splines, and sampling.

All have the same sizes: the same numbers in a sample, parts, and widths of their networks, with ReLU in between, which
is the others' own choice. The last rows tell how long a token takes in sampling from a tarflow, of growing numbers of
tokens: with a cache the time of one grows by a little.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check, density
from normkit.bench import _steps, cases, report, timing
from normkit.bench._steps import OURS

TAKES = ("names", "sizes")
SIZE = (512, 8)  # samples, numbers in each
DEPTH, HIDDEN, BINS = 4, 64, 8
TAILS = {"tails": "linear", "tail_bound": 5.0}
TOKENS = (32, 64, 128, 256)
SAMPLES = 8
COLUMNS = {**_steps.COLUMNS, "a token": lambda row: report.duration(row["token"]) if "token" in row else "-"}
LEGEND = {**_steps.LEGEND, "a token": "of all samples together"}
Call = Callable[[], object]


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race every flow, or those named, at every size."""
    rows: list[dict[str, Any]] = []
    for name in options.names:
        check.choice("bench", "a flow that races", name, (*RACES, "tarflow"))
    for size in cases.sizes(options.sizes) if options.sizes else [SIZE]:
        if len(size) != 2:
            raise ValueError(f"--sizes: samples of a flow are samples x numbers, such as 512x8, not {size}")
        for name, line_up in RACES.items():
            if options.names and name not in options.names:
                continue
            print(f"racing {name} {size[0]}x{size[1]}", file=sys.stderr)
            torch.manual_seed(0)
            rows += _steps.race(name, f"{size[0]}x{size[1]}", "training", line_up(*size), options.repeats, clock)
    if not options.names or "tarflow" in options.names:
        rows += sampling(options.repeats, clock)
    return {"rows": _steps.missing(rows, "zuko", "nflows", "normflows"), "failed": {}}


def sampling(repeats: int, clock: timing.Clock) -> list[dict[str, Any]]:
    """Sample from tarflows of growing numbers of tokens."""
    rows: list[dict[str, Any]] = []
    for count in TOKENS:
        print(f"sampling tarflow of {count} tokens", file=sys.stderr)
        flow = density.flow("tarflow", count, depth=1, layers=1, hidden=HIDDEN)
        entrants = {OURS: functools.partial(flow.sample, SAMPLES)}
        [row] = _steps.race("tarflow", f"{SAMPLES}x{count}", "sampling", entrants, repeats, clock)
        rows.append({**row, "token": row["seconds"] / count})
    return rows


def step(log_prob: Callable[[Tensor], Tensor], module: nn.Module, x: Tensor) -> Call:
    """A training step without its optimizer: the mean of log densities and all gradients."""

    def call() -> None:
        module.zero_grad()
        (-log_prob(x).mean()).backward()

    return call


def _ours(name: str, x: Tensor, **options: Any) -> dict[str, Call]:
    flow = density.flow(name, x.shape[1], depth=DEPTH, hidden=HIDDEN, activation="relu", **options).initialize(x)
    return {OURS: step(flow.log_prob, flow, x)}


def _zuko(kind: str, x: Tensor, **options: Any) -> dict[str, Call]:
    zuko = _steps.install("zuko")
    if zuko is None:
        return {}
    flow = getattr(zuko.flows, kind)(x.shape[1], transforms=DEPTH, hidden_features=(HIDDEN, HIDDEN), **options)
    return {"zuko": step(lambda x: flow().log_prob(x), flow, x)}


def _nflows(kind: str, x: Tensor, **options: Any) -> dict[str, Call]:
    modules = _steps.install("nflows.transforms"), _steps.install("nflows.flows")
    bases = _steps.install("nflows.distributions")
    if None in modules or bases is None:
        return {}
    parts, flows = modules
    sizes = {"hidden_features": HIDDEN, "num_blocks": 1, "use_residual_blocks": False, **options}
    layers = [getattr(parts, kind)(x.shape[1], **sizes) for _ in range(DEPTH)]
    flow = flows.Flow(parts.CompositeTransform(layers), bases.StandardNormal([x.shape[1]]))
    return {"nflows": step(flow.log_prob, flow, x)}


def _normflows(kind: str, x: Tensor, *sizes: int) -> dict[str, Call]:
    normflows = _steps.install("normflows")
    if normflows is None:
        return {}
    layers = [getattr(normflows.flows, kind)(x.shape[1], *sizes) for _ in range(DEPTH)]
    flow = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(x.shape[1]), layers)
    return {"normflows": step(flow.log_prob, flow, x)}


def _affine_autoregressive(count: int, dim: int) -> dict[str, Call]:
    x, kind = torch.randn(count, dim), "MaskedAffineAutoregressiveTransform"
    rivals = _zuko("MAF", x) | _nflows(kind, x) | _normflows("MaskedAffineAutoregressive", x, HIDDEN)
    return _ours("affine-autoregressive", x) | rivals


def _spline_autoregressive(count: int, dim: int) -> dict[str, Call]:
    x, kind = torch.randn(count, dim), "MaskedPiecewiseRationalQuadraticAutoregressiveTransform"
    rivals = _zuko("NSF", x, bins=BINS) | _nflows(kind, x, num_bins=BINS, **TAILS)
    others = _normflows("AutoregressiveRationalQuadraticSpline", x, 1, HIDDEN)
    return _ours("spline-autoregressive", x, bins=BINS) | rivals | others


def _spline_coupling(count: int, dim: int) -> dict[str, Call]:
    x = torch.randn(count, dim)
    others = _normflows("CoupledRationalQuadraticSpline", x, 1, HIDDEN)
    return _ours("spline-coupling", x, bins=BINS) | _zuko("NSF", x, bins=BINS, passes=2) | others


def _affine_coupling(count: int, dim: int) -> dict[str, Call]:
    x = torch.randn(count, dim)
    return _ours("affine-coupling", x) | _zuko("MAF", x, passes=2)


def _spline(count: int, dim: int) -> dict[str, Call]:
    x = torch.randn(count, dim)
    spline = catalog.create("rational-quadratic-spline", BINS, **TAILS)
    knots = [torch.randn(count, dim, size, requires_grad=True) for size in (BINS, BINS, BINS - 1)]
    return {OURS: _bent(lambda: spline(x, *knots), knots)} | _theirs_bent(x, knots)


def _theirs_bent(x: Tensor, knots: list[Tensor]) -> dict[str, Call]:
    zuko, nflows = _steps.install("zuko"), _steps.install("nflows.transforms.splines")
    calls: dict[str, Call] = {}
    if zuko is not None:
        kind = zuko.transforms.MonotonicRQSTransform
        calls["zuko"] = _bent(lambda: kind(*knots, bound=5.0).call_and_ladj(x), knots)
    if nflows is not None:
        bend = nflows.unconstrained_rational_quadratic_spline
        calls["nflows"] = _bent(lambda: bend(x, *knots, **TAILS), knots)
    return calls


def _bent(bend: Callable[[], tuple[Tensor, Tensor]], knots: list[Tensor]) -> Call:
    def call() -> None:
        y, log_slope = bend()
        torch.autograd.grad(y.sum() + log_slope.sum(), knots)

    return call


RACES: dict[str, Callable[[int, int], dict[str, Call]]] = {
    "affine-autoregressive": _affine_autoregressive,
    "spline-autoregressive": _spline_autoregressive,
    "affine-coupling": _affine_coupling,
    "spline-coupling": _spline_coupling,
    "rational-quadratic-spline": _spline,
}
