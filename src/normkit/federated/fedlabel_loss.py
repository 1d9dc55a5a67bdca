"""FedLabel's loss: pseudo-labels of the surer of two models, and a pull towards the trained one."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._judges import PAPER, judge, options
from normkit.kinds import Loss
from normkit.statistics import accurate


@method(
    "fedlabel-loss",
    paper=PAPER,
    shape="N C",
    over="C",
    inputs={"plain": "N C", "received": "N C", "trained": "N C"},
)
class FedLabelLoss(Loss):
    """Lower the cross-entropy with pseudo-labels, and the distance from the model that was trained on labels.

    For the unlabeled samples of a client. With labels, weights and the samples U that are used as in
    ``fedlabel-select``, and A those of U that both judges put in one class,

        pseudo_weight mean_U CE(strong_i, label_i)
            + consistency mean_A weight_i KL(softmax(trained_i / t) | softmax(plain_i / t))

    An empty mean is 0. The authors add a proximal term over the parameters, which is left to the caller.

    Args:
        threshold, measure, temperature: as for ``fedlabel-select``; the temperature t.
        pseudo_weight, consistency: the weights of the terms.

    ``loss(strong, plain, received, trained)``, all (N, C): logits of the model in training on augmented and on plain
    samples, and of the two judges on the plain ones, which carry no gradient.

    Local or Global (Cho et al., 2023), arXiv 2307.08809.
    """

    def __init__(
        self,
        threshold: float = 0.3,
        measure: str = "variance",
        temperature: float = 1.0,
        pseudo_weight: float = 1.0,
        consistency: float = 0.05,
    ):
        super().__init__()
        self.threshold, self.measure, self.temperature = options(self, threshold, measure, temperature)
        self.pseudo_weight = check.number(self, "pseudo_weight", pseudo_weight)
        self.consistency = check.number(self, "consistency", consistency)

    def forward(self, strong: Tensor, plain: Tensor, received: Tensor, trained: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "strong", strong, (None, None), strong)
        for name, logits in (("plain", plain), ("received", received), ("trained", trained)):
            check.values(self, name, logits, strong.shape, strong)
        label, weight, _, used = judge(received, trained, self.threshold, self.measure, self.temperature)
        own = torch.log_softmax(accurate(strong), 1).gather(1, label.unsqueeze(1)).squeeze(1)
        want, got = (torch.log_softmax(accurate(z) / self.temperature, 1) for z in (trained.detach(), plain))
        apart = (want.exp() * (want - got)).sum(1) * weight
        agreed = used & (received.argmax(1) == trained.argmax(1))
        loss = -self.pseudo_weight * _mean(own, used) + self.consistency * _mean(apart, agreed)
        return loss.to(strong.dtype)


def _mean(values: Tensor, used: Tensor) -> Tensor:
    return torch.where(used, values, 0).sum() / used.sum().clamp(min=1)
