"""CInC / FInC: an invertible convolution, padded on two sides only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import reals

ORDERS = ("TL", "TR", "BL", "BR")


@method(
    "cinc-conv",
    paper="FInC Flow (Kallappa et al., 2023), arXiv 2301.09266; CInC Flow (Nagar et al., 2021), arXiv 2107.01358",
    shape="N C H W",
)
class CInCConv(Transform):
    """Convolve an image so that each pixel sees only those before it, and itself triangularly.

    In the place of the 1x1 convolutions of a flow of images: it mixes space as well, and its determinant costs nothing.

    The image is padded at one corner, so that the corner tap K of the kernel, a matrix over the channels, sees the
    pixel itself; K is lower triangular.

        z = conv(pad(x), weight) + bias,    log_det = H W sum log |diag K|

    Args:
        num_features: C.
        kernel_size: a number, or (height, width).
        order: the corner that is padded: "T"op or "B"ottom, "L"eft or "R"ight. Four in a row see all around.
        unit_diagonal: FInC, with ones on the diagonal of K and log_det = 0; else CInC.
        bias: whether to add a learned shift.

    ``forward(x)``, (N, C, H, W), returns ``z`` and ``log_det`` (N,); ``inverse(z)`` returns x, one antidiagonal of
    pixels after the other.

    FInC Flow (Kallappa et al., 2023), arXiv 2301.09266; CInC Flow (Nagar et al., 2021), arXiv 2107.01358.

    Differs from the authors' code in: entries of K that are fixed get no gradient, where they mask gradients after the
    backward pass.
    """

    def __init__(
        self,
        num_features: int,
        kernel_size: int | tuple[int, int] = 3,
        *,
        order: str = "TL",
        unit_diagonal: bool = True,
        bias: bool = False,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        sides = tuple(kernel_size) if isinstance(kernel_size, list | tuple) else (kernel_size, kernel_size)
        if len(sides) != 2:
            raise ValueError(f"{type(self).__name__}: kernel_size must be one number or two, not {kernel_size!r}")
        self.kernel_size = tuple(check.size(self, "kernel_size", side) for side in sides)
        self.order = check.choice(self, "order", order, ORDERS)
        self.unit_diagonal = unit_diagonal
        self.weight = nn.Parameter(torch.empty(num_features, num_features, *self.kernel_size))
        self.bias = nn.Parameter(torch.zeros(num_features)) if bias else None
        nn.init.normal_(self.weight, std=0.05)
        row, column = self._corner
        with torch.no_grad():
            tap = self.weight[:, :, row, column]
            tap.copy_(tap.tril(-1) + torch.eye(num_features))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, C, H, W), and the log-determinant of each sample."""
        check.channels_first(self, x, self.num_features, 4, 4)
        wide = reals(self, "x", x, x.shape)
        weight, corner = self._weight(wide.dtype)
        bias = None if self.bias is None else self.bias.to(wide.dtype)
        z = F.conv2d(F.pad(wide, self._padding), weight, bias)
        log_det = corner.diagonal().abs().log().sum() * (x.shape[2] * x.shape[3])
        return z.to(x.dtype), log_det.expand(len(x)).to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return what ``z`` (N, C, H, W) is the image of."""
        check.channels_first(self, z, self.num_features, 4, 4, name="z")
        wide = reals(self, "z", z, z.shape)
        weight, corner = self._weight(wide.dtype)
        shifted = wide if self.bias is None else wide - self.bias.to(wide.dtype).reshape(-1, 1, 1)
        turned = [axis for axis, letter, at in ((-2, "B", 0), (-1, "R", 1)) if self.order[at] == letter]
        return _solve(shifted.flip(turned), weight.flip(turned), corner).flip(turned).to(z.dtype)

    @property
    def _corner(self) -> tuple[int, int]:
        """Where the tap is that sees the pixel itself."""
        height, width = self.kernel_size
        return (height - 1 if self.order[0] == "T" else 0), (width - 1 if self.order[1] == "L" else 0)

    @property
    def _padding(self) -> tuple[int, int, int, int]:
        row, column = self._corner
        height, width = self.kernel_size
        return column, width - 1 - column, row, height - 1 - row

    def _weight(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The kernel that is used, and its corner tap."""
        weight, (row, column) = self.weight.to(dtype), self._corner
        tap = weight[:, :, row, column]
        if self.unit_diagonal:
            tap = tap.tril(-1) + torch.eye(self.num_features, dtype=dtype, device=weight.device)
        tap = tap.tril()
        height, width = (torch.arange(size, device=weight.device) for size in self.kernel_size)
        at = (height == row).unsqueeze(1) & (width == column)
        return torch.where(at, tap[:, :, None, None], weight), tap


def _solve(z: Tensor, weight: Tensor, corner: Tensor) -> Tensor:
    """Undo a convolution that is padded at the top left."""
    (height, width), (rows, columns) = weight.shape[2:], z.shape[2:]
    others = weight.clone()
    others[:, :, -1, -1] = 0
    x = F.pad(torch.zeros_like(z), (width - 1, 0, height - 1, 0))
    down, right = (torch.arange(size, device=z.device) for size in (height, width))
    for diagonal in range(rows + columns - 1):
        i = torch.arange(max(0, diagonal - columns + 1), min(diagonal + 1, rows), device=z.device)
        j = diagonal - i
        seen = x[:, :, i[:, None, None] + down[:, None], j[:, None, None] + right]
        rest = z[:, :, i, j] - torch.einsum("oiab,nipab->nop", others, seen)
        x[:, :, i + height - 1, j + width - 1] = torch.linalg.solve_triangular(corner, rest, upper=False)
    return x[:, :, height - 1 :, width - 1 :]
