"""FedLabel's choice: each sample labeled by the surer of two models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._judges import PAPER, judge, options
from normkit.federated._states import finite

NAME = "fedlabel-select"


class Selected(NamedTuple):
    """Pseudo-labels, -1 where a sample is not used; their weights; the share of them that the trained model gave."""

    label: Tensor
    weight: Tensor
    trained_share: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="N C",
    over="C",
    inputs={"trained": "N C"},
    exempt={"gradcheck": "pseudo-labels are constants"},
)
@torch.no_grad()
def fedlabel_select(
    received: Tensor,
    trained: Tensor,
    *,
    threshold: float = 0.3,
    measure: str = "variance",
    temperature: float = 1.0,
) -> Selected:
    """Label each sample by whichever of two models is surer of it, if its largest probability is above a threshold.

    For clients with few labels: the server's model knows more classes, the client's own knows its data. With
    p, q the softmax of received and trained at the temperature, and c a confidence,

        label = argmax p, weight = c(q) / c(p)  if c(p) >= c(q) and max p > threshold
        label = argmax q, weight = c(p) / c(q)  if c(p) <  c(q) and max q > threshold

    and -1 with weight 0 otherwise. No weight is above 1; where both confidences are 0 it is 1.

    Args:
        received: logits of the server's model as it arrived, (N, C).
        trained: those of the same after this round's steps on the client's labels.
        threshold: of the largest probability.
        measure: ``"variance"`` of the probabilities over classes, unbiased, or ``"entropy"``, 1 / (entropy + 1e-5).
        temperature: of both softmaxes.

    Returns ``label`` int64 and ``weight`` (N,), and ``trained_share`` (), 0 if nothing is used.

    Local or Global (Cho et al., 2023), arXiv 2307.08809.
    """
    check.values(NAME, "received", received, (None, None), received)
    check.values(NAME, "trained", trained, received.shape, received)
    for name, logits in (("received", received), ("trained", trained)):
        finite(NAME, name, logits)
    label, weight, own, used = judge(received, trained, *options(NAME, threshold, measure, temperature))
    share = (own & used).sum().to(weight.dtype) / used.sum().clamp(min=1)
    weight = torch.where(used, weight, 0).to(received.dtype)
    return Selected(torch.where(used, label, -1), weight, share.to(received.dtype))
