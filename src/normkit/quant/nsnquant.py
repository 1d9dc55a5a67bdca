"""NSNQuant's transform: tokens made alike before rounding, by two norms with a shift between them."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.ops.hadamard import hadamard
from normkit.statistics import accurate

WHERE = ("after", "before", "none")
LEAST = 1e-37  # a square that a root is taken of; below, float32 has no normal numbers


@method(
    "nsnquant",
    paper="NSNQuant: A Double Normalization Approach for Calibration-Free Low-Bit Vector Quantization of KV Cache "
    "(Son et al., 2025), arXiv 2505.18231",
    evidence="equations",
    shape="... T C",
    over="T C",
    provenance="the equations of the paper, without its codebooks; the authors' code is not public",
    example={"hadamard": "none"},  # of any width
)
class NSNQuant(Method):
    """Divide each token by its size, subtract the tokens' mean, divide again, and rotate by a Hadamard matrix.

    For keys and values of a cache that are to be rounded to few bits: each entry of the result is nearly standard
    normal whatever the model, so that one codebook serves all. Over the D channels of a token x_t and the T tokens of
    a chunk,

        scale1 = max(|x_t| / sqrt(D), eps),     shift = mean over tokens of x_t / scale1
        scale2 = max(|x_t / scale1 - shift| / sqrt(D), eps)
        y = ((x_t / scale1 - shift) / scale2) H

    Args:
        head_dim: D, a power of two where there is a rotation.
        hadamard: ``"after"`` as above; ``"before"``, x H is what is normalized, which gives the same y and lets the
            rotation be a part of the weights before; or ``"none"``.
        eps: the least size of a token.

    ``nsn(x)``: (..., T, D), a chunk of T tokens; leading axes are apart. Returns y (..., T, D), scale1 (..., T, 1),
    shift (..., 1, D), scale2 (..., T, 1). ``inverse`` of the four is x. Keys are taken before the rotary embedding.

    NSNQuant (2025), arXiv 2505.18231.
    """

    def __init__(self, head_dim: int, *, hadamard: str = "after", eps: float = 1e-8):
        super().__init__()
        self.head_dim = check.size(self, "head_dim", head_dim)
        self.hadamard = check.choice(self, "hadamard", hadamard, WHERE)
        self.eps = check.eps(self, eps)
        if hadamard != "none" and head_dim & (head_dim - 1):
            raise ValueError(
                f"{type(self).__name__}: head_dim must be a power of two for a rotation, not {head_dim}; "
                "hadamard='none' takes any"
            )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return y, scale1, shift and scale2."""
        self._check("x", x)
        wide = accurate(x)
        wide = _rotate(wide) if self.hadamard == "before" else wide
        scale1 = self._size(wide)
        once = wide / scale1
        shift = once.sum(-2, keepdim=True) / max(x.shape[-2], 1)
        apart = once - shift
        scale2 = self._size(apart)
        y = apart / scale2
        y = _rotate(y) if self.hadamard == "after" else y
        return y.to(x.dtype), scale1.to(x.dtype), shift.to(x.dtype), scale2.to(x.dtype)

    def inverse(self, y: Tensor, scale1: Tensor, shift: Tensor, scale2: Tensor) -> Tensor:
        """Return x again."""
        self._check("y", y)
        wide = accurate(y)
        wide = _rotate(wide) if self.hadamard == "after" else wide
        x = accurate(scale1) * (accurate(scale2) * wide + accurate(shift))
        return (_rotate(x) if self.hadamard == "before" else x).to(y.dtype)

    def _check(self, name: str, x: Tensor) -> None:
        check.features_last(self, x, self.head_dim, name)
        if x.dim() < 2:
            raise ValueError(
                f"{type(self).__name__}: {name} must have an axis of tokens before the last, but its shape is "
                f"{tuple(x.shape)}"
            )

    def _size(self, x: Tensor) -> Tensor:
        """The root mean square of each token, not below eps."""
        square = x.square().mean(-1, keepdim=True)
        return square.clamp(min=max(self.eps**2, LEAST)).sqrt()


def _rotate(x: Tensor) -> Tensor:
    """Multiply by Sylvester's matrix over the root of its order, which is its own inverse."""
    return x @ hadamard(x.shape[-1]).to(x)
