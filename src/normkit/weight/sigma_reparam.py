"""Sigma-reparametrization: a weight whose largest singular value is one learned number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.running import moving, once, snapshot
from normkit.statistics import accurate
from normkit.weight._power import EPS, Triplet, iterate, unit
from normkit.weight._shapes import matrix, no_direction

CONSTANT = "the singular vectors, which depend on the weight too, carry no gradient"
NONE = "a weight of zeros has no largest direction"


@method(
    "sigma-reparam",
    paper="Stabilizing Transformer Training by Preventing Attention Entropy Collapse (Zhai et al., 2023), "
    "arXiv 2303.06296",
    shape="C I",
    over="C I",
    example={"shape": lambda rows: (rows, 5)},
    invariant=("scale",),
    exempt={
        "gradcheck": CONSTANT,
        "higher-derivatives": CONSTANT,
        "extremes zeros": NONE,
        "extremes tiny float32": NONE,
        "extremes tiny bfloat16": NONE,
        "extremes tiny float16": NONE,
    },
)
class SigmaReparam(Parametrization):
    """Divide a weight by its largest singular value, and multiply it by a learned number.

    For every linear map of a transformer, whose attention then cannot collapse to a few keys, so that it trains
    without warm-up, weight decay and even LayerNorm. With W the weight as a matrix (out, in), n(x) = x / |x|, and one
    step of power iteration a pass, v = n(W u), u <- n(W^T v),

        weight = gamma * raw / sigma,    sigma = v^T W u

    The gradient does not flow through u and v. In evaluation the step is taken too, and its result not kept.

    Args:
        shape: of the weight; a convolution's counts as (out, the rest).
        gamma_init: what gamma starts at; None: at sigma, so that the weight starts as it was. The paper and the
            authors' speech code have 1.

    State: ``gamma`` (1,), which should not decay; ``u`` (in,), ``sigma`` (1,), the last estimate. :meth:`reset` sets
    them from the singular values of a weight.

    Stabilizing Transformer Training by Preventing Attention Entropy Collapse (Zhai et al., 2023), arXiv 2303.06296.
    """

    finite = True

    u: Tensor
    sigma: Tensor

    def __init__(self, shape: Sequence[int], *, gamma_init: float | None = None):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape, least=2)
        self.gamma_init = None if gamma_init is None else check.number(self, "gamma_init", gamma_init)
        self.gamma = nn.Parameter(torch.ones(1) if self.gamma_init is None else torch.full((1,), self.gamma_init))
        self.register_buffer("u", unit(torch.randn(math.prod(self.shape[1:]))))
        self.register_buffer("sigma", torch.ones(1))

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``; in training move ``u`` and ``sigma``."""
        check.values(self, "raw", raw, self.shape, raw)
        wide = accurate(raw)
        if self.training:
            with once(self):
                triplet = self._find(wide)
                self._keep(triplet)
        else:
            triplet = self._find(wide)
        return (wide * (self.gamma.to(wide.dtype) / triplet.value)).to(raw.dtype)

    def _find(self, raw: Tensor) -> Triplet:
        return iterate(matrix(raw), snapshot(self.u).to(raw.dtype))

    def _keep(self, triplet: Triplet) -> None:
        with moving():
            self.u.copy_(triplet.right)
            self.sigma.copy_(triplet.value.detach().reshape(1))

    @torch.no_grad()
    def reset(self, raw: Tensor) -> None:
        """Let ``u`` and ``sigma`` be the first singular vector and value of ``raw``, and gamma too if it is to be."""
        check.values(self, "raw", raw, self.shape, raw)
        _, values, right = torch.linalg.svd(matrix(accurate(raw)), full_matrices=False)
        self.u.copy_(right[0])
        self.sigma.copy_(values[:1])
        if self.gamma_init is None:
            self.gamma.copy_(values[:1])

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        return super().refusal(weight) or no_direction(torch.linalg.vector_norm(accurate(weight.detach())), EPS)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a weight over as the raw one, with its own largest singular value as gamma."""
        self.reset(weight)
        return weight
