"""LayerNorm: zero mean and unit variance within each vector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "layernorm",
    paper="Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450",
    shape="... C",
    over="C",
    replaces=("rmsnorm",),
    aliases={
        "ln": {},
        "OlmoLayerNorm": {"affine": False},
        "NemotronLayerNorm1P": {"offset": 1.0},
    },
    called={
        "torch.nn.LayerNorm": "normalized_shape=dim eps elementwise_affine=affine bias device dtype",
        "timm.layers.LayerNorm": "num_channels=dim eps affine",
    },
    dialects={"offset": (0.0, 1.0)},
    invariant=("shift", "scale"),
    peer=lambda dim: nn.LayerNorm(dim),
)
class LayerNorm(RowNorm):
    """Give each vector zero mean and unit variance, then a learned gain and shift.

    The norm of transformers, independent of the batch. Over the trailing axes ``dim``, with mu the mean and v the
    biased variance,

        y = (x - mu) / sqrt(v + eps) * (offset + weight) + bias

    Args:
        dim: size of the last axis, or the sizes of the trailing axes that are normalized together.
        eps: added to the variance under the root; 0 is honoured.
        affine: learn a gain and a shift.
        bias: learn a shift; without effect when ``affine`` is off.
        offset: the gain is ``offset + weight``; 1 is Nemotron's dialect, whose ``weight`` starts at 0.

    Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450.
    """

    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        offset: float = 0.0,
    ):
        offset = check.number(self, "offset", offset)
        rule = ops.Row(center=True, statistic="square", eps=check.eps(self, eps), offset=offset)
        super().__init__(dim, rule, gain=1.0 - offset if affine else None, bias=affine and bias)
