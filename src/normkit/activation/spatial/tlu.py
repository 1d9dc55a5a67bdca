"""The thresholded linear unit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "tlu",
    paper="Filter Response Normalization Layer: Eliminating Batch Dependence in the Training of Deep Neural "
    "Networks (Singh, Krishnan, 2019), arXiv 1911.09737",
    evidence="abstract",
    shape="N C *",
    over="",
    provenance="recalled from the paper, no authors' code",
)
class TLU(Norm):
    """Cut each channel off at a learned threshold.

    In the place of ReLU after a norm that does not center, such as ``rmsnorm2d``: zero is not the middle of its data.
    ``frn`` has it inside. After a norm that centers, such as ``batchnorm``, its learned shift already moves the
    threshold of a ReLU.

    With one threshold a channel,

        y = max(x, tau)

    which equals ReLU(x - tau) + tau. A tie splits the gradient in halves. tau may become negative; weight decay should
    leave it out.

    Args:
        num_features: C, the number of channels.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Filter Response Normalization Layer (Singh, Krishnan, 2019), arXiv 1911.09737; reconstructed.
    """

    def __init__(self, num_features: int):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.tau = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Cut ``x`` off."""
        check.channels_first(self, x, self.num_features)
        return ops.threshold(x, self.tau)
