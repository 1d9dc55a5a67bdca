"""The spectrum of a Hessian by Lanczos' iteration, which asks for its products with vectors alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.probe.hessian_criteria import PAPER
from normkit.statistics import accurate, full_precision

SMALL = 1e-2  # a Hessian so small would be lost in eps


class Spectrum(NamedTuple):
    """Ritz values, ascending, and how much of the spectrum each stands for; the weights sum to 1."""

    eigenvalues: Tensor
    weights: Tensor


@method(
    "hessian-spectrum",
    paper=PAPER,
    shape="C C : definite",
    inputs={"start": "C"},
    example={"steps": 4},
    exempt={"gradcheck": "a probe, not a loss: it has no gradient"},
)
def hessian_spectrum(
    hessian: Tensor | Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    steps: int = 100,
    window: int = 10,
    eps: float = 1e-6,
    generator: torch.Generator | None = None,
) -> Spectrum:
    """Take some steps of Lanczos' iteration: the outer eigenvalues, and a quadrature of the whole spectrum.

    For watching curvature in training, with the spectra of several starts given to ``hessian-density`` and
    ``hessian-criteria``.

    With q_0 = start / (|start| + eps), step j orthogonalizes w to the kept vectors, and takes

        q_j = w / (|w| + eps),    alpha_j = <H q_j, q_j>,    w = H q_j - alpha_j q_j - beta_j q_(j-1),    beta = |w|

    Args:
        hessian: a symmetric matrix, (n, n), or a function of a vector: :func:`product` of a loss.
        start: where to begin, (n,); independent signs, of which several are averaged.
        steps: how many eigenvalues there will be, at most n.
        window: how many vectors before the last are kept; where steps exceed it, the top eigenvalues come in copies of
            small weight.
        eps: added to norms; after the first of them times the largest norm of H q so far, where that is below 0.01. So
            a small Hessian has the same spectrum.
        generator: draws the next vector, apart from the kept ones, where nothing but rounding is left of w; beta is 0.

    Returns ``eigenvalues``, ascending, and ``weights``, (steps,) each. No gradient.

    Investigating generalization capabilities (Gabdullin, 2024), arXiv 2412.10146.
    """
    name = "hessian_spectrum"
    check.values(name, "start", start, (None,), start)
    if not callable(hessian):
        check.values(name, "hessian", hessian, (len(start), len(start)), start)
    steps, window = check.size(name, "steps", steps), check.size(name, "window", window, 0)
    begin = accurate(start.detach())
    alphas, betas = _lanczos(_matvec(hessian, begin), begin, steps, window, check.eps(name, eps), generator)
    values, vectors = torch.linalg.eigh(torch.diag(alphas) + torch.diag(betas, 1) + torch.diag(betas, -1))
    return Spectrum(values.to(start.dtype), vectors[0].square().to(start.dtype))


def product(loss: Callable[[Mapping[str, Tensor]], Tensor], parameters: Mapping[str, Tensor]) -> Callable:
    """Return the function that multiplies a flat vector by the Hessian of a loss at the parameters.

    ``loss`` takes the parameters by name, as :func:`torch.func.functional_call` does, and must be twice
    differentiable; the vector holds them one after another.

    >>> parameters = {"x": torch.tensor([1.0, 2.0])}
    >>> product(lambda at: at["x"].pow(3).sum(), parameters)(torch.tensor([1.0, 1.0]))
    tensor([ 6., 12.])
    """
    at = {name: value.detach() for name, value in parameters.items()}
    sizes = [value.numel() for value in at.values()]

    def times(vector: Tensor) -> Tensor:
        parts = zip(at.items(), vector.split(sizes), strict=True)
        along = {name: part.view_as(value).to(value.dtype) for (name, value), part in parts}
        # backward twice, as a Hessian is symmetric: forward, torch's logcumsumexp has a wrong derivative behind -inf
        (products,) = torch.func.vjp(torch.func.grad(loss), at)[1](along)
        return torch.cat([part.detach().flatten() for part in products.values()])

    return times


def _matvec(hessian: Tensor | Callable[[Tensor], Tensor], like: Tensor) -> Callable[[Tensor], Tensor]:
    if callable(hessian):
        return lambda vector: hessian(vector).detach().to(like.dtype)
    wide = hessian.detach().to(like.dtype)

    def times(vector: Tensor) -> Tensor:
        with full_precision(vector):
            return wide @ vector

    return times


def _lanczos(
    matvec: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
    window: int,
    eps: float,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """The diagonal of the tridiagonal matrix, and the entries beside it."""
    kept: list[Tensor] = []
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    w, largest = start, start.new_zeros(())
    least: float | Tensor = eps
    rounding = torch.finfo(start.dtype).eps ** (2 / 3)  # a step from rounding alone leads out of the spectrum
    for step in range(min(steps, len(start))):
        if step:
            betas.append(w.norm())
            w = _orthogonal(w, kept)
            least = torch.where(largest < SMALL, eps * largest, eps)
            if not w.norm() > 10 * least + rounding * largest:
                betas[-1] = torch.zeros_like(betas[-1])
                w = torch.randn(w.shape, generator=generator, dtype=w.dtype, device=w.device)
                w = torch.nn.functional.normalize(_orthogonal(w, kept), dim=0)
        q = w / (w.norm() + least)
        along = matvec(q)
        largest = torch.maximum(largest, along.norm())
        alphas.append(torch.dot(along, q))
        w = along - alphas[-1] * q - (betas[-1] * kept[-1] if step else 0)
        kept = [*kept, q][-window - 1 :]
    return torch.stack(alphas), torch.stack(betas) if betas else start.new_zeros(0)


def _orthogonal(w: Tensor, kept: list[Tensor]) -> Tensor:
    for other in kept:
        w = w - other * (torch.dot(w, other) / torch.dot(other, other).clamp(min=torch.finfo(w.dtype).tiny))
    return w
