"""The sigmoid loss: every pair of a batch is a question of yes or no."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate, full_precision


@method(
    "sigmoid-loss",
    paper="Sigmoid Loss for Language Image Pre-Training (Zhai et al., 2023), arXiv 2303.15343",
    shape="N C",
    over="N",
    inputs={"text": "N C"},
    aliases={"siglip": {}},
    exempt={"processes": "every pair of the batch counts; join the batch before the call"},
)
class SigmoidLoss(Loss):
    """Ask of every pair of image and text whether they belong together, without a softmax over the batch.

    For two towers that learn a common space, also with small batches: nothing is normalized over the other pairs. With
    z = exp(log_scale) image textᵀ + bias, and y = 1 for pairs of the same row and -1 for all others,

        - 1/N sum_ij log sigmoid(y_ij z_ij)

    The sum over a row is kept, not averaged. The initial bias makes nearly every answer "no" at the start, so that the
    many wrong pairs do not rule the first steps.

    Args:
        scale: the initial scale; its logarithm is learned.
        bias: the initial bias.

    ``loss(image, text)``: (N, D) both, rows of length 1, not seen to here. State: ``log_scale``, ``bias``.

    Sigmoid Loss for Language Image Pre-Training (Zhai et al., 2023), arXiv 2303.15343.
    """

    def __init__(self, *, scale: float = 10.0, bias: float = -10.0):
        super().__init__()
        self.initial = math.log(check.number(self, "scale", scale, 0.0, open_low=True))
        self.log_scale = nn.Parameter(torch.tensor(self.initial))
        self.bias = nn.Parameter(torch.tensor(check.number(self, "bias", bias)))

    def _apply(self, fn, recurse=True):
        """Cast or move; a scale that is still the initial one is as exact as the new type has it."""
        untouched = not self.log_scale.is_meta and self.log_scale.item() == self.log_scale.new_tensor(self.initial)
        super()._apply(fn, recurse)
        if untouched and not self.log_scale.is_meta:
            self.log_scale.data.fill_(self.initial)
        return self

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "image", image, (None, None), image)
        check.values(self, "text", text, image.shape, image)
        scale, bias = accurate(self.log_scale).exp(), accurate(self.bias)
        wide = accurate(image)
        with full_precision(image):
            z = scale * (wide @ accurate(text).to(wide.dtype).mT) + bias
        same = torch.eye(len(image), dtype=torch.bool, device=image.device)
        answers = F.logsigmoid(torch.where(same, z, -z))
        return (-answers.sum() / max(len(image), 1)).to(image.dtype)
