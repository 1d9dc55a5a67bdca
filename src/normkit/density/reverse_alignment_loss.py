"""FlowBack: features of a flow's way back to data, drawn to those of an image encoder."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import linear
from normkit.kinds import Loss
from normkit.statistics import reals

CONSTANT = "targets are constants for the gradient"


@method(
    "reverse-alignment-loss",
    paper="Flowing Backwards: Improving Normalizing Flows via Reverse Representation Alignment (Chen et al., 2025), "
    "arXiv 2511.22345",
    evidence="equations",
    shape="N T C",
    inputs={"targets": "N T 3"},
    example={"target_dim": 3, "hidden": 5},
    provenance="the equation alone; the authors' projector, layers and weight were not to be had",
    exempt={"gradcheck": CONSTANT, "higher-derivatives": CONSTANT},
)
class ReverseAlignmentLoss(Loss):
    """Draw features of a flow, taken on the way from latents to data, to frozen features of the data.

    For training an image flow such as ``tarflow-block``, beside its likelihood, where a trained image encoder is at
    hand: its layers learn what the encoder knows. Without an encoder for such images leave it out.

    The way back runs in parallel on known tokens: one forward pass without a gradient gives the inputs of every block,
    on which each block's inverse is run. With the projector two layers with a SiLU between,

        loss = -mean cos(projector(features), targets)

    Args:
        dim: of the features.
        target_dim: of the targets.
        hidden: width of the projector.

    ``loss(features, targets)``: (N, T, dim) and (N, T, target_dim); targets carry no gradient. Features of the forward
    pass are said to work less well.

    Flowing Backwards: Improving Normalizing Flows via Reverse Representation Alignment (2025).
    """

    def __init__(self, dim: int, target_dim: int, *, hidden: int = 1024):
        super().__init__()
        self.dim, self.target_dim = check.size(self, "dim", dim), check.size(self, "target_dim", target_dim)
        self.first = nn.Linear(dim, check.size(self, "hidden", hidden))
        self.last = nn.Linear(hidden, target_dim)

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the loss, a single number."""
        own = reals(self, "features", features, (None, None, self.dim))
        target = reals(self, "targets", targets, (*features.shape[:2], self.target_dim), features).detach()
        projected = linear(F.silu(linear(own, self.first)), self.last)
        return -F.cosine_similarity(projected, target, dim=-1).mean().to(features.dtype)
