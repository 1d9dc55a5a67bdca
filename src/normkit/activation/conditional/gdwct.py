"""GDWCT: whitening and coloring by groups of channels, learned instead of decomposed."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.conditional._map import linear
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "gdwct",
    paper="Image-to-Image Translation via Group-wise Deep Whitening-and-Coloring Transformation (Cho et al., 2018), "
    "arXiv 1812.09912",
    shape="N C H W",
    over="N H W",
    inputs={"style": "N C"},
    example={"num_groups": 2, "hidden_channels": 5},
    exempt={
        "empty": "the covariance has its size whatever the batch",
        "processes": "two of the outputs are joined along no axis; tests/activation compares them",
    },
)
class GDWCT(Norm):
    """Center the content's channels over the batch, then mix each group of channels by a matrix made from the style.

    For image translation with the correlations of channels, not just their deviations. Where the deviations are enough,
    take ``adain``.

    Each of G = ``num_groups`` pieces of the style gives a matrix S (n, n), n = C / G, and with U = S / D, D the length
    of each column of S,

        y0 = S U^T (content - mean) + shift(style),        y = alpha * y0 + (1 - alpha) * content

    per group and position; the mean is over samples and positions, also in evaluation. The content is not multiplied by
    a whitening matrix: a loss on the returned covariance, ``0.001 * regularizer(covariance)``, makes it white, and ``10
    * regularizer(eigenvectors)`` makes U orthogonal. ``alpha`` (1,) starts at 0.6 and is used as it is; the training
    loop calls :meth:`clip_alpha` before every generator step.

    Args:
        num_features: C.
        num_groups: G, a divisor of C.
        hidden_channels: width of the network ``coloring`` that makes S.
        eps: added to the diagonal of the covariance.
        sync: join mean and covariance over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input content ``(N, C, H, W)`` and style ``(N, C)`` or ``(N, C, 1, 1)``. Returns y, the covariance ``(G, n, n)`` of
    the centered content and the eigenvectors U ``(G * N, n, n)``, all samples of the first group first.

    Image-to-Image Translation via Group-wise Deep Whitening-and-Coloring Transformation (Cho et al., 2018),
    arXiv 1812.09912.

    Differs from the paper, as the authors' code does, in: the coloring regularizer compares U itself, not U^T U, with
    the identity.
    """

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 8,
        hidden_channels: int = 256,
        eps: float = 1e-5,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_groups = check.size(self, "num_groups", num_groups)
        check.divides(self, "num_groups", num_groups, "num_features", num_features)
        hidden_channels = check.size(self, "hidden_channels", hidden_channels)
        self.eps = check.eps(self, eps)
        self.sync, self.process_group = sync, process_group
        self.width = num_features // num_groups
        self.alpha = nn.Parameter(torch.full((1,), 0.6))
        self.coloring = _layers(self.width, *[hidden_channels] * 4, self.width**2)
        self.shift = _layers(*[num_features] * 4)

    def forward(self, content: Tensor, style: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the colored content, its covariance by group and the eigenvectors of the coloring."""
        check.channels_first(self, content, self.num_features, 4, 4, name="content")
        check.floating(self, style, "style")
        check.shape(self, "style", style, (*content.shape[:2], *[1] * (style.dim() - 2)), content)
        exact = statistics.accurate(content)
        style = style.to(exact.dtype).flatten(1)
        pieces = style.unflatten(1, (self.num_groups, self.width))
        matrices = _run(self.coloring, pieces).unflatten(-1, (self.width, self.width))
        eigenvectors = matrices / matrices.square().sum(-2, keepdim=True).sqrt()
        mean, covariance = self._moments(exact)
        centered = exact - mean.view(-1, 1, 1)
        grouped = centered.flatten(2).unflatten(1, (self.num_groups, self.width))
        colored = (matrices @ eigenvectors.mT @ grouped).view(centered.shape)
        colored = colored + _run(self.shift, style)[..., None, None]
        y = (1 - self.alpha) * exact + self.alpha * colored
        outputs = y, covariance, eigenvectors.transpose(0, 1).flatten(0, 1)
        return tuple(output.to(content.dtype) for output in outputs)  # type: ignore[return-value]

    def regularizer(self, matrices: Tensor) -> Tensor:
        """Return the mean distance of the entries of matrices (..., n, n) from those of the identity."""
        check.floating(self, matrices, "matrices")
        if matrices.dim() < 2 or matrices.shape[-1] != matrices.shape[-2]:
            raise ValueError(f"GDWCT: matrices must have shape (..., n, n), but its shape is {tuple(matrices.shape)}")
        return (matrices - torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)).abs().mean()

    @torch.no_grad()
    def clip_alpha(self) -> None:
        """Bring alpha back to [0, 1], in place."""
        self.alpha.clamp_(0, 1)

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means of the channels, and the covariance of each group's, with eps on the diagonal."""
        mean, count = statistics.mean_and_count(x, (0, 2, 3))
        values = (x - mean.view(-1, 1, 1)).movedim(1, 0).unflatten(0, (self.num_groups, self.width)).flatten(2)
        with statistics.full_precision(x):
            product = values @ values.mT
        if self.sync and statistics.processes(self.process_group) > 1:
            mean, product, count = statistics.join_products(mean, values, product, count, self.process_group)
        identity = torch.eye(self.width, dtype=product.dtype, device=product.device)
        return mean, product / (count - 1).clamp(min=1) + self.eps * identity


def _layers(*widths: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))


def _run(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """Run linear layers in the type of x, with leaky ReLUs between them."""
    for index, layer in enumerate(layers):
        x = F.leaky_relu(x) if index else x
        x = linear(x, layer.weight, layer.bias)  # type: ignore[arg-type]
    return x
