"""Weight normalization: the length and the direction of a weight, learned apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.statistics import accurate
from normkit.weight._shapes import no_direction


@method(
    "weight-norm",
    paper="Weight Normalization: A Simple Reparameterization to Accelerate Training of Deep Neural Networks (Salimans "
    "and Kingma, 2016), arXiv 1602.07868",
    evidence="library",
    shape="C I",
    over="I",
    example={"shape": lambda slices: (slices, 5)},
    invariant=("scale",),
    exempt={
        "extremes zeros": "a slice of length 0 has no direction",
        "extremes tiny float16": "1e-20 is 0 in float16",
    },
)
class WeightNorm(Parametrization):
    """Divide each slice of a raw weight by its length, and multiply it by a learned one.

    For training without the noise of batch statistics: the gradient of the raw weight is orthogonal to it, so its
    length only ever grows and steadies the step. It normalizes no activations; ``mean-only-batchnorm`` centers them
    beside it.

        weight[j] = g[j] * raw[j] / |raw[j]|,      j along ``dim``, the length over all other axes

    Args:
        shape: of the weight.
        dim: the axis that counts the slices (1 for a transposed convolution); None: the whole weight is one.

    State: ``g`` (shape[dim],), or (1,) without a ``dim``; the raw weight is the caller's. :meth:`reset` lets g be the
    lengths that a weight has, as torch's parametrization begins; :meth:`data_init` is the authors' start from a batch.

    Weight Normalization (Salimans and Kingma, 2016), arXiv 1602.07868.
    """

    per_output = True

    def __init__(self, shape: Sequence[int], *, dim: int | None = 0):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        if dim is not None and check.size(self, "dim", dim, least=0) >= len(self.shape):
            raise ValueError(f"{type(self).__name__}: dim must be None or below {len(self.shape)}, not {dim}")
        self.dim = dim
        self.g = nn.Parameter(torch.ones(1 if dim is None else self.shape[dim]))

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        wide = accurate(raw)
        return (wide * (self._slices(self.g) / self._lengths(wide))).to(raw.dtype)

    def _lengths(self, raw: Tensor) -> Tensor:
        axes = [axis for axis in range(raw.dim()) if axis != self.dim]
        return torch.linalg.vector_norm(raw, dim=axes, keepdim=True) if axes else raw.abs()

    def _slices(self, numbers: Tensor) -> Tensor:
        shape = [1] * len(self.shape)
        if self.dim is not None:
            shape[self.dim] = -1
        return accurate(numbers).view(shape)

    @torch.no_grad()
    def reset(self, raw: Tensor) -> None:
        """Let ``g`` be the lengths of ``raw``, so that the weight is ``raw`` itself."""
        check.values(self, "raw", raw, self.shape, raw)
        self.g.copy_(self._lengths(accurate(raw)).flatten())

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        return no_direction(self._lengths(accurate(weight.detach())))

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a weight over as the raw one; what ``torch.nn.utils.parametrize`` calls at an assignment."""
        self.reset(weight)
        return weight

    @torch.no_grad()
    def data_init(self, raw: Tensor, x: Tensor, init_scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Set ``g`` so that a linear map of the batch ``x`` (N, in) has the deviation ``init_scale``.

        Return g and the bias, which the caller keeps and with which the mean is 0. Go layer by layer, each fed what
        the one before makes.
        """
        check.values(self, "raw", raw, self.shape, raw)
        check.values(self, "x", x, (None, raw.shape[-1]), raw)
        check.number(self, "init_scale", init_scale, 0.0, open_low=True)
        if len(self.shape) != 2 or self.dim != 0:
            raise ValueError(f"{type(self).__name__}: data_init is for a linear map, shape (out, in) and dim=0")
        if len(x) < 2:
            raise ValueError(f"{type(self).__name__}: x must hold at least 2 samples, not {len(x)}")
        wide = accurate(raw)
        t = accurate(x) @ (wide / self._lengths(wide)).mT
        g = init_scale / (t.var(0, correction=0) + 1e-10).sqrt()
        self.g.copy_(g)
        return self.g.detach().clone(), (-t.mean(0) * g).to(raw.dtype)
