"""Spectral normalization: a weight divided by its largest singular value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.running import moving, once, snapshot
from normkit.statistics import accurate
from normkit.weight._power import Triplet, iterate, unit, value
from normkit.weight._shapes import axis_of, matrix, no_direction

FIRST = 15  # iterations with which torch begins
CONSTANT = "the singular vectors, which depend on the weight too, carry no gradient"
NONE = "a weight of zeros has no largest direction"


@method(
    "spectral-norm",
    paper="Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018), arXiv 1802.05957",
    evidence="library",
    shape="C I",
    over="C I",
    example={"shape": lambda rows: (rows, 5)},
    invariant=("scale",),
    exempt={
        "gradcheck train": CONSTANT,
        "higher-derivatives": CONSTANT,
        "extremes zeros": NONE,
        "extremes tiny float32": NONE,
        "extremes tiny bfloat16": NONE,
        "extremes tiny float16": NONE,
        "units": "eps is the least length of the vectors that the power iteration turns, one after the other",
    },
)
class SpectralNorm(Parametrization):
    """Divide a weight by its largest singular value, which one step of power iteration a pass follows.

    For the layers of a discriminator. A linear layer is then 1-Lipschitz; a convolution need not be, as its matrix is
    not that of the whole map. For the matrices of a transformer take ``sigma-reparam``, which learns the scale.

    With W the weight as a matrix, its rows counted by ``dim``, in training n times u <- n(W v), v <- n(W^T u), and then

        weight = raw / sigma,    sigma = u^T W v,    n(x) = x / max(|x|, eps)

    The gradient does not flow through u and v. In evaluation they stand still.

    Args:
        shape: of the weight. One of a single axis is divided by its length.
        n_power_iterations: n.
        dim: the axis that counts the outputs: 1 for a transposed convolution.
        eps: floor of the lengths; with ``"sngan"`` added to them.
        variant: ``"torch"``, or ``"sngan"``, the authors' own: v <- n(W^T u), u <- n(W v), in evaluation too, where
            the result is not kept.
        factor: the largest singular value that the weight gets, 1 if None.

    State: ``u`` (out,) and, but for ``"sngan"``, ``v`` (the product of the other sizes,). :meth:`reset` takes the
    fifteen steps on a weight that torch begins with. Of a convolution the norm of the kernel as a matrix is taken, a
    bound of that of the operator up to a constant. Checkpoints of ``torch.nn.utils.parametrizations.spectral_norm``,
    whose vectors are ``_u`` and ``_v``, load.

    Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018), arXiv 1802.05957.
    """

    per_output = True

    u: Tensor
    v: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        *,
        n_power_iterations: int = 1,
        dim: int = 0,
        eps: float = 1e-12,
        variant: str = "torch",
        factor: float | None = None,
    ):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.n_power_iterations = check.size(self, "n_power_iterations", n_power_iterations, most=1000)
        self.dim = axis_of(self, dim, self.shape)
        self.eps = check.eps(self, eps)
        self.variant = check.choice(self, "variant", variant, ("torch", "sngan"))
        self.factor = None if factor is None else check.number(self, "factor", factor, 0.0, open_low=True)
        if len(self.shape) > 1:
            self._start()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in ("u", "v"):  # those of torch.nn.utils.parametrizations.spectral_norm are _u and _v
            if f"{prefix}_{name}" in state_dict:
                state_dict.setdefault(f"{prefix}{name}", state_dict.pop(f"{prefix}_{name}"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _start(self) -> None:
        out = self.shape[self.dim]
        u = torch.randn(out)
        rest = math.prod(self.shape) // out
        self.register_buffer("u", unit(u, self.eps) if self.variant == "torch" else u)
        if self.variant == "torch":
            self.register_buffer("v", unit(torch.randn(rest), self.eps))

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``; in training move the vectors."""
        check.values(self, "raw", raw, self.shape, raw)
        wide = accurate(raw)
        if wide.dim() == 1:
            size = torch.linalg.vector_norm(wide).clamp(min=self.eps)
        else:
            size = self._size(matrix(wide, self.dim))
        return (wide * ((self.factor or 1.0) / size)).to(raw.dtype)

    def _size(self, weight: Tensor) -> Tensor:
        if self.training:
            with once(self):
                triplet = self._find(weight)
                self._keep(triplet)
            return triplet.value
        if self.variant == "sngan":
            return self._find(weight).value
        return value(weight, snapshot(self.u).to(weight.dtype), snapshot(self.v).to(weight.dtype))

    def _find(self, weight: Tensor, rounds: int | None = None) -> Triplet:
        rounds = rounds or self.n_power_iterations
        if self.variant == "torch":
            start = snapshot(self.v).to(weight.dtype)
            return iterate(weight, start, rounds, partial(unit, eps=self.eps))
        right, left, size = iterate(weight.mT, snapshot(self.u).to(weight.dtype), rounds, self._unit)
        return Triplet(left, right, size)

    def _unit(self, x: Tensor) -> Tensor:
        return x / (torch.linalg.vector_norm(x) + self.eps)

    def _keep(self, triplet: Triplet) -> None:
        with moving():
            self.u.copy_(triplet.left)
            if self.variant == "torch":
                self.v.copy_(triplet.right)

    @torch.no_grad()
    def reset(self, raw: Tensor) -> None:
        """Take the steps on ``raw`` that torch begins with; ``"sngan"`` takes none."""
        check.values(self, "raw", raw, self.shape, raw)
        if len(self.shape) > 1 and self.variant == "torch":
            self._keep(self._find(matrix(accurate(raw), self.dim), FIRST))

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        return no_direction(torch.linalg.vector_norm(accurate(weight.detach())), self.eps)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a weight over as the raw one, and begin at its singular vectors."""
        self.reset(weight)
        return weight
