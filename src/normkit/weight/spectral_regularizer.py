"""The spectral regularizer: the largest singular value of each layer held at 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.running import moving, once, snapshot
from normkit.statistics import accurate
from normkit.weight._penalty import Penalty
from normkit.weight._power import Triplet, iterate, unit
from normkit.weight._shapes import matrix

CONSTANT = "the singular vectors, which depend on the weight too, carry no gradient"


@method(
    "spectral-regularizer",
    paper="Learning Continually by Spectral Regularization (Lewandowski et al., 2025), arXiv 2406.06811",
    evidence="equations",
    shape="C I",
    over="C I",
    inputs={"bias?": "C"},
    example={"shape": lambda rows: (rows, 5)},
    provenance="the paper's equations, confirmed by two independent implementations; the authors' code is not public",
    exempt={"gradcheck": CONSTANT, "higher-derivatives": CONSTANT},
)
class SpectralRegularizer(Penalty):
    """Penalize the distance of a weight's largest singular value from 1, and the size of its bias.

    For long sequences of tasks, over which a network stays trainable as long as its layers keep the spectrum that they
    were born with. With sigma as power iteration follows it, a step a pass, which carries no gradient itself,

        loss = (sigma^k - 1)^2 + (sum bias^2)^k

    Add it up over the layers (``nk.weight.regularize``), and multiply it by a strength.

    Args:
        shape: of the weight; a convolution's counts as (out, the rest).
        k: the exponent.
        n_power_iterations: steps a pass; 0: the exact singular value, and no state.
        eps: floor of the lengths.

    ``loss(weight)`` or ``loss(weight, bias)``. State: ``v`` (the product of shape[1:],), which moves in training. The
    gains and shifts of norms: :func:`norm_penalty`.

    Learning Continually by Spectral Regularization (Lewandowski et al., 2025), arXiv 2406.06811.
    """

    v: Tensor
    beside = True

    def __init__(self, shape: Sequence[int], *, k: int = 2, n_power_iterations: int = 1, eps: float = 1e-12):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape, least=2)
        self.k = check.size(self, "k", k, most=100)
        self.n_power_iterations = check.size(self, "n_power_iterations", n_power_iterations, least=0, most=1000)
        self.eps = check.eps(self, eps)
        if n_power_iterations:
            self.register_buffer("v", unit(torch.randn(math.prod(self.shape[1:])), self.eps))

    def forward(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the loss, a single number; in training move ``v``."""
        check.values(self, "weight", weight, self.shape, weight)
        if bias is not None:
            check.values(self, "bias", bias, (None,), weight)
        wide = accurate(weight)
        loss = wide.new_zeros(()) if self.shared else (self._size(matrix(wide)) ** self.k - 1).square()
        if bias is not None:
            loss = loss + accurate(bias).square().sum() ** self.k
        return loss.to(weight.dtype)

    def inputs(self, module: nn.Module, tensor: str) -> tuple[Tensor, ...]:
        """The weight, and the layer's bias if it has one."""
        bias = getattr(module, "bias", None)
        return (getattr(module, tensor), *([bias] if isinstance(bias, Tensor) else []))

    def _size(self, weight: Tensor) -> Tensor:
        if not self.n_power_iterations:
            return torch.linalg.matrix_norm(weight, 2)
        if not self.training:
            return self._find(weight).value
        with once(self):
            triplet = self._find(weight)
            with moving():
                self.v.copy_(triplet.right)
        return triplet.value

    def _find(self, weight: Tensor) -> Triplet:
        start = snapshot(self.v).to(weight.dtype)
        return iterate(weight, start, self.n_power_iterations, partial(unit, eps=self.eps))


def norm_penalty(gain: Tensor | None, shift: Tensor | None, k: int = 2) -> Tensor | float:
    """Return the loss of a norm's parameters: each gain taken as a layer of its own, and the shifts as a bias.

    >>> norm_penalty(torch.tensor([1.0, 2.0]), torch.zeros(2))
    tensor(9.)
    """
    of_gain = 0.0 if gain is None else (accurate(gain).abs() ** k - 1).square().sum()
    of_shift = 0.0 if shift is None else accurate(shift).square().sum() ** k
    return of_gain + of_shift
