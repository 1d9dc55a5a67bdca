"""The curvature of a model's loss: top eigenvalues and trace of its Hessian, by products with vectors alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from normkit import check
from normkit.columns import number_of
from normkit.ops.row import HALVES
from normkit.optional import library
from normkit.probe.hessian_density import hessian_density
from normkit.probe.hessian_spectrum import hessian_spectrum, product
from normkit.statistics import accurate
from normkit.surgery.statistics.batch_statistics import arguments_in
from normkit.watching.drawn import Drawn, line, picture
from normkit.watching.inspecting import batches_for, dense_copy, errors_named, loss_of
from normkit.watching.landscape import SEEDS, Loss

BINS = 400


@dataclass(frozen=True)
class Curvature(Drawn):
    """What the Hessian of a loss is like.

    top: its largest eigenvalues, the largest first. least: the smallest. trace, error: the estimate and its standard
    error. length: of all the weights, squared; a weight that a norm follows has a curvature that falls with it.
    values, weights: a quadrature of the whole spectrum, (draws, steps) each.
    """

    top: Tensor
    least: float
    trace: float
    error: float
    length: float
    values: Tensor
    weights: Tensor
    name = "curvature"

    def __str__(self) -> str:
        top = ", ".join(f"{value:.4g}" for value in self.top.tolist())
        return (
            f"top eigenvalues {top}; least {self.least:.4g}; trace {self.trace:.4g} +- {self.error:.2g}; "
            f"largest times the squared length of the weights {float(self.top[0]) * self.length:.4g}"
        )

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        return "the curvature of the loss", str(self)

    def pictures(self) -> list[dict[str, Any]]:
        """Draw the density of the spectrum, and the top eigenvalues."""
        density, places = hessian_density(self.values, self.weights, bins=BINS, variance=1e-4)
        shown = density.clamp(min=1e-6 * float(density.max()))
        curve = [line("density", places.tolist(), shown.tolist(), "var(--c0)")]
        curve[0]["mode"] = "lines"
        order = [line("eigenvalue", range(1, len(self.top) + 1), self.top.tolist(), "var(--c0)")]
        caption = f"By Lanczos' iteration, {number_of(len(self.values), 'start')}; every eigenvalue a narrow Gaussian."
        return [
            picture("Spectrum of the Hessian", caption, curve, "eigenvalue", "density", up={"type": "log"}),
            picture("Top eigenvalues", str(self), order, "rank", "eigenvalue", up={"rangemode": "tozero"}),
        ]


@torch.inference_mode(False)
def curvature(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    top: int = 3,
    draws: int = 4,
    steps: int = 20,
    loss: Loss = loss_of,
    seed: int = 0,
) -> Curvature:
    """Take the largest eigenvalues and the trace of the Hessian of a model's loss.

    In eval mode, on a copy in float32 at least. The eigenvalues come from scipy's solver (ARPACK), the trace from
    Lanczos' iteration (``hessian-spectrum``) from random signs; both ask for products of the Hessian with vectors
    alone, each of which costs about three training steps on ``batches``.

    Args:
        model: any model that is differentiable twice; attention and torch's norm of weights are computed by
            their formulas here.
        batches: what its loss is the mean of: tuples of inputs and classes, or keyword arguments.
        top: how many eigenvalues.
        draws: random starts, whose spread gives the error of the trace.
        steps: of Lanczos' iteration from each.
        loss: of the model's output and the batch; by default the model's own, or that of the batch's classes.
        seed: of the starts.
    """
    top, steps = check.size("curvature", "top", top), check.size("curvature", "steps", steps)
    draws, seed = check.size("curvature", "draws", draws), check.size("curvature", "seed", seed, *SEEDS)
    batches = batches_for("curvature", batches)
    own, parameters = _wide_copy(model)
    size = sum(p.numel() for p in parameters.values())
    if not top < size:
        raise ValueError(f"curvature: top must be less than the {size} trained parameters, not {top}")

    def mean_loss(at: Mapping[str, Tensor]) -> Tensor:
        return torch.stack([loss(_forward(own, at, batch), batch) for batch in batches]).mean()

    chance, steps = torch.Generator().manual_seed(seed), min(steps, size)
    like = next(iter(parameters.values()))
    with sdpa_kernel(SDPBackend.MATH), _Formula():
        times = product(mean_loss, parameters)
        signs = 2.0 * torch.randint(2, (draws, size), generator=chance, device="cpu") - 1
        runs = [hessian_spectrum(times, sign.to(like), steps=steps, window=steps) for sign in signs]
        largest, least = _ends(times, like, size, top, signs[0].numpy())
    values = torch.stack([run.eigenvalues.cpu() for run in runs])
    weights = torch.stack([run.weights.cpu() for run in runs])
    traces = size * (values * weights).sum(1).double()
    error = float(traces.std(correction=1)) / draws**0.5 if draws > 1 else float("nan")
    length = sum(float(p.double().square().sum()) for p in parameters.values())
    return Curvature(largest, least, float(traces.mean()), error, length, values, weights)


class _Formula(TorchFunctionMode):
    """Compute torch's norm of weights by its formula: the second derivative of its kernel is wrong (torch 2.13)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._weight_norm:
            v, g, dim = args
            return v * (g / torch.norm_except_dim(v, 2, dim))
        return func(*args, **(kwargs or {}))


def _forward(model: nn.Module, at: Mapping[str, Tensor], batch: Any) -> Any:
    with errors_named("curvature", model, batch):
        return functional_call(model, dict(at), *tree_map_only(Tensor, accurate, arguments_in(model, batch)))


def _wide_copy(model: nn.Module) -> tuple[nn.Module, dict[str, Tensor]]:
    """A copy in eval mode, in float32 at least, and the parameters that are trained."""
    own = dense_copy(model).eval()
    own = own.float() if any(p.dtype in HALVES for p in own.parameters()) else own
    return own, {name: p.detach() for name, p in own.named_parameters() if p.requires_grad}


def _ends(times: Callable[[Tensor], Tensor], like: Tensor, size: int, top: int, start: Any) -> tuple[Tensor, float]:
    """The largest eigenvalues and the smallest one."""
    library("scipy")
    from scipy.sparse.linalg import LinearOperator, eigsh

    def matvec(vector: Any) -> Any:
        return times(torch.from_numpy(np.ascontiguousarray(vector)).to(like).flatten()).double().cpu().numpy()

    operator = LinearOperator((size, size), matvec=matvec, dtype=np.float64)
    eigenvalues = {
        which: eigsh(operator, count, which=which, v0=start.astype(np.float64), tol=1e-4, return_eigenvectors=False)
        for which, count in (("LA", top), ("SA", 1))
    }
    return torch.from_numpy(np.sort(eigenvalues["LA"])[::-1].copy()), float(eigenvalues["SA"][0])
