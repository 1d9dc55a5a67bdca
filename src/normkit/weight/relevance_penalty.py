"""The relevance penalty: weights that the loss does not depend on shrink."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.parameters import own_parameter
from normkit.statistics import accurate
from normkit.weight._penalty import Penalty


@method(
    "relevance-penalty",
    paper="Regularization-based Pruning of Irrelevant Weights in Deep Neural Architectures (Bonetta et al., 2022), "
    "arXiv 2204.04977",
    shape="C I",
    over="C I",
    inputs={"gradient": "C I"},
    example={"gamma": 0.5},
    exempt={"gradcheck": "the gradient of the task is a constant", "higher-derivatives": "for the same reason"},
)
class RelevancePenalty(Penalty):
    """Penalize the square of each weight by how little the loss depends on it.

    For pruning by magnitude: what is left large is needed. With the gradient g of the task's loss, a constant here,

        penalty = gamma sum exp(-|g| / alpha) weight^2

    There is no 1/2: far below alpha it is a weight decay of 2 gamma. ``relevance-decay`` is an optimizer that does the
    same in one backward pass.

    Args:
        gamma: the strength.
        alpha: the size of a gradient's entry at which a weight begins to count; infinity is plain weight decay.

    ``penalty(weight, gradient)``, of one shape, any rank. The gradient is that of the loss without penalty, in the
    same step, before the optimizer's momentum.

    Regularization-based Pruning of Irrelevant Weights (Bonetta, Ribero, Cancelliere, 2022), arXiv 2204.04977.
    """

    everywhere = True

    def __init__(self, *, gamma: float = 1e-5, alpha: float = 1.0):
        super().__init__()
        self.gamma = check.number(self, "gamma", gamma, 0.0)
        self.alpha = check.number(self, "alpha", alpha, 0.0, open_low=True)

    def inputs(self, module: nn.Module, tensor: str) -> tuple[Tensor, ...] | None:
        """A parameter and its gradient, if it has one."""
        value = own_parameter(module, tensor)
        return None if value is None or value.grad is None else (value, value.grad)

    def forward(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return the penalty, a single number."""
        check.floating(self, weight, "weight")
        check.values(self, "gradient", gradient, weight.shape, weight)
        share = torch.exp(-accurate(gradient.detach()).abs() / self.alpha)
        return (self.gamma * (share * accurate(weight).square()).sum()).to(weight.dtype)
