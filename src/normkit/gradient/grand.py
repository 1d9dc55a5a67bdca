"""GraNd: how long each sample's own gradient is."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.gradient.el2n import PAPER, error
from normkit.parameters import mode
from normkit.statistics import accurate


@method(
    "grand",
    paper=PAPER,
    shape="N F",
    over="F",
    inputs={"logits": "N C", "target": "N : index C"},
    exempt={"gradcheck": "a score, not a loss: it has no gradient"},
)
@torch.no_grad()
def grand(features: Tensor, logits: Tensor, target: Tensor, *, bias: bool = True) -> Tensor:
    """Measure the length of each sample's gradient of the cross-entropy at the last linear layer.

    For pruning a data set, as EL2N, to which it is near after a few epochs. ``el2n`` needs the softmax alone.

    With p the softmax, y the one-hot label and h the layer's input,

        score = |p - y| sqrt(|h|^2 + 1),    without the 1 where the layer has no bias

    :func:`scores` takes the gradient of a whole model.

    Args:
        features: what the last layer is given, (N, F).
        logits: what it returns, (N, C).
        target: the classes, int64 (N,).
        bias: whether it has one.

    Deep Learning on a Data Diet (Paul et al., 2021), arXiv 2107.07075.
    """
    check.values("grand", "features", features, (None, None), features)
    check.shape("grand", "logits", logits, (features.shape[0], None), features)
    length = error(grand, logits, target).norm(dim=1)
    square = accurate(features).square().sum(1)
    return (length * (square + bias).sqrt()).to(features.dtype)


def scores(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Return the length of each sample's gradient over all parameters of a model (N,), the model in evaluation.

    >>> torch.manual_seed(0); layer = nn.Linear(3, 2); x = torch.ones(1, 3); target = torch.tensor([0])
    <torch._C.Generator object at ...>
    >>> torch.allclose(scores(layer, x, target), grand(x, layer(x), target))
    True
    """
    learned = {name: p.detach() for name, p in model.named_parameters()}
    rest = {name: b.detach() for name, b in model.named_buffers()}

    def loss(own: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, {**rest, **own}, (sample[None],))
        return F.cross_entropy(accurate(logits), label[None])

    with mode(model, False):
        grads = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(learned, x, target)
    squares = torch.stack([accurate(g).flatten(1).square().sum(1) for g in grads.values()])
    return squares.sum(0).sqrt().to(next(iter(grads.values())).dtype)
