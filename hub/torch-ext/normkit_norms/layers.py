"""One layer a dialect of RMSNorm and LayerNorm: a forward pass for modules that hold ``weight`` and eps by those names.

The hub's way with layers: they have no state of their own, and their ``forward`` is bound to the module that it serves.
"""

from functools import lru_cache

from torch import Tensor, nn

from .normkit.ops.row import Row, row_norm


@lru_cache(maxsize=256)
def rule(center: bool, eps: float, offset: float, cast: str) -> Row:
    """Return the rule of a dialect, the same object for the same words."""
    return Row(center=center, eps=eps, offset=offset, cast=cast)


def normalize(module: nn.Module, x: Tensor, *, center: bool = False, offset: float = 0.0, cast: str = "late") -> Tensor:
    """Normalize the trailing axes of ``x`` by what the module holds."""
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None) if center else None
    shape = tuple(module.normalized_shape) if hasattr(module, "normalized_shape") else None
    return row_norm(x, weight, bias, rule(center, eps, offset, cast), shape, type(module).__name__)


class RMSNorm(nn.Module):
    """Llama's: half precision is rounded before the gain."""

    can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        return normalize(self, x, cast="early")


class RMSNormLate(nn.Module):
    """OLMo 2's: half precision is rounded once, behind the gain."""

    can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        return normalize(self, x)


class RMSNormZeroCentered(nn.Module):
    """Gemma's: the gain is 1 + weight, and half precision is rounded once, behind it."""

    can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        return normalize(self, x, offset=1.0)


class LayerNorm(nn.Module):
    """torch's, with or without gain and shift."""

    can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        return normalize(self, x, center=True)
