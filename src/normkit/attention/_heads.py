"""Norms of queries, keys and values, head by head, as parts of a core."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import ops, statistics
from normkit.attention._linear import inverse
from normkit.ops.rope import Turns

NORMS = ("layernorm", "rmsnorm")


class HeadNorm(nn.Module):
    """Layer norm or RMS norm over the last axis, with one gain for all heads, or with ``heads`` one for each.

    Layer norm has a shift too. One pass over memory where there is a kernel; half precision is worked out in float32
    and, where heads share the gain, rounded once, after it. With an eps of 0 a row that has no length gives 0, not NaN.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, kind: str, features: int, eps: float, heads: int | None = None):
        super().__init__()
        shape = (features,) if heads is None else (heads, features)
        self.rule = ops.Row(center=kind == "layernorm", eps=eps)
        self.weight = nn.Parameter(torch.ones(shape))
        self.register_parameter("bias", nn.Parameter(torch.zeros(shape)) if self.rule.center else None)

    def forward(self, x: Tensor, angles: Turns | None = None) -> Tensor:
        """Normalize (N, heads, T, features), and turn by ``angles`` in the same pass where heads share the gain."""
        if angles is not None and self.weight.dim() == 1 and self.rule.eps > 0:
            return ops.norm_rotate(x, self.weight, self.bias, angles, rule=self.rule)
        y = self._normalize(x)
        return y if angles is None else ops.rotate(y, angles)

    def _normalize(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 1 and self.rule.eps > 0:
            return ops.row_norm(x, self.weight, self.bias, self.rule)
        y = ops.row_norm(x, rule=self.rule) if self.rule.eps > 0 else _unit(x, self.rule.center)
        y = y * self.weight.unsqueeze(-2).to(x.dtype)
        return y if self.bias is None else y + self.bias.unsqueeze(-2).to(x.dtype)

    def extra_repr(self) -> str:
        """Show what is normalized, and how."""
        kind = NORMS[0] if self.rule.center else NORMS[1]
        return f"{kind!r}, {tuple(self.weight.shape)}, eps={self.rule.eps}"


def _unit(x: Tensor, center: bool) -> Tensor:
    """Divide rows by their root mean square or deviation, where they have one."""
    z = statistics.accurate(x)
    z = z - z.mean(-1, keepdim=True) if center else z
    return (z * inverse(statistics.root(z.square().mean(-1, keepdim=True)))).to(x.dtype)
