"""nGPT's weights: every vector that meets the stream has length 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Parametrization
from normkit.statistics import accurate
from normkit.weight._shapes import axis_of, no_direction

LENGTH = ops.Row(eps=0.0, eps_place="floor")
NONE = "a vector of zeros has no direction"


@method(
    "ngpt-weights",
    paper="nGPT: Normalized Transformer with Representation Learning on the Hypersphere (Loshchilov et al., 2024), "
    "arXiv 2410.01131",
    shape="C I",
    over="I",
    example={"shape": lambda rows: (rows, 5)},
    invariant=("scale",),
    exempt={"extremes zeros": NONE, "extremes tiny float16": "1e-20 is 0 in float16"},
)
class NGPTWeights(Parametrization):
    """Divide every vector of a weight along an axis by its length.

    For transformers on the unit sphere, where each product is a cosine. The axis is that of the model's width: 1, the
    inputs, of what reads the stream (embeddings, head, query, key, value, the MLP's input); 0, the outputs, of what
    writes to it (the output projections of attention and MLP):

        weight = raw / |raw|,    the length along `dim`

    The authors do so to the stored weights, once before training and after every step of the optimizer:
    ``nk.weight.project(model, optimizer, "ngpt-weights", where=...)``, :meth:`project_`, or :func:`ngpt_project`.

    Args:
        shape: of the weight.
        dim: the axis along which a vector lies.

    There is no floor: a vector of zeros gives NaN. Half precision is worked out in float32.

    nGPT: Normalized Transformer with Representation Learning on the Hypersphere (Loshchilov et al., 2024), arXiv
    2410.01131.
    """

    projects = True

    def __init__(self, shape: Sequence[int], *, dim: int = 1):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.dim = axis_of(self, dim, self.shape)

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        wide = accurate(raw)
        if self.dim == wide.dim() - 1:
            return ops.row_norm(wide, rule=LENGTH).to(raw.dtype)
        return (wide * (1 / torch.linalg.vector_norm(wide, dim=self.dim, keepdim=True))).to(raw.dtype)

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        return no_direction(torch.linalg.vector_norm(accurate(weight.detach()), dim=self.dim))


def ngpt_project(weights: Mapping[Tensor, int]) -> None:
    """Normalize stored weights in place, each along the axis that it is mapped to.

    >>> weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> ngpt_project({weight: 1})
    >>> weight.data
    tensor([[0.6000, 0.8000]])
    """
    maps = [(weight, NGPTWeights(tuple(weight.shape), dim=dim)) for weight, dim in weights.items()]
    for weight, sphere in maps:
        sphere.project_(weight)
