"""Global context block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.token.layernorm import LayerNorm
from normkit.catalog import method
from normkit.layers import Linear
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts


@method(
    "gcblock",
    paper="GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond (Cao et al., 2019), arXiv 1904.11492",
    shape="N C +",
    over="*",
    example={"ratio": 0.5},
    exempt={
        "gradients mask.bias": "it cancels in the softmax, so its gradient is zero",
        "batches rows": "the order of sums in torch's convolution follows batch and threads",
        "batches threads": "the order of sums in torch's convolution follows batch and threads",
        "batches gains": "the order of sums in torch's convolution follows batch and threads",
    },
)
class GCBlock(Norm):
    """Add to every position, or multiply it by, a layer-normalized summary of the whole image.

    For convolutional networks that need a global view at little cost: a non-local block whose attention is the same
    for every query. With the context of the raw x, per sample,

        context = sum over positions of p x,   p = softmax over positions of mask(x)     ("att")
        context = mean of x over positions                                               ("avg")
        branch = expand(relu(layer_norm(reduce(context))))
        y = x * sigmoid(mul branch) + add branch

    with only the branches that ``fusion`` names, the multiplication always first. ``expand`` starts at 0: "add" alone
    is the identity at the start, "mul" halves.

    Args:
        num_features: C, the number of channels.
        ratio: share of C in the hidden width int(C * ratio), which must be at least 1.
        pooling: "att" or "avg".
        fusion: "add", "mul" or both.

    Input ``(N, C, *space)`` with at least one axis of space.

    GCNet (Cao et al., 2019), arXiv 1904.11492; Global Context Networks (2020), arXiv 2012.13375.

    Differs from the authors' code in: the 1x1 convolutions of a vector are linear maps, with weights of two axes.
    """

    def __init__(
        self,
        num_features: int,
        *,
        ratio: float = 1 / 16,
        pooling: str = "att",
        fusion: Sequence[str] = ("add",),
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        hidden = int(num_features * check.number(self, "ratio", ratio, 0, check.LARGEST, open_low=True))
        if hidden < 1:
            raise ValueError(f"GCBlock: ratio={ratio} leaves no hidden channel of num_features={num_features}")
        self.pooling = check.choice(self, "pooling", pooling, ("att", "avg"))
        self.fusion = _names(self, fusion)
        if pooling == "att":
            self.mask = Linear(num_features, 1)
            nn.init.kaiming_normal_(self.mask.weight, mode="fan_in")
            nn.init.zeros_(self.mask.bias)
        for name in self.fusion:
            self._add_branch(name, hidden)

    def _add_branch(self, name: str, hidden: int) -> None:
        self.add_module(f"{name}_reduce", Linear(self.num_features, hidden))
        self.add_module(f"{name}_norm", LayerNorm(hidden, eps=1e-5))
        expand = Linear(hidden, self.num_features)
        nn.init.zeros_(expand.weight)
        nn.init.zeros_(expand.bias)
        self.add_module(f"{name}_expand", expand)

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Fuse ``x`` with its context."""
        check.channels_first(self, x, self.num_features, 3)
        exact = statistics.accurate(x)
        context = self._context(exact.flatten(2))
        branches = {}
        for name in self.fusion:
            hidden = self.get_submodule(f"{name}_reduce")(context)
            branches[name] = self.get_submodule(f"{name}_expand")(self._activate(name, hidden))
        return self._fuse(exact, branches).to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Fuse images whose space or channels are cut with their context, by one message for each axis of the mesh.

        With cut channels the context's weights need a sum over all channels at each position, and the hidden features
        one of what these weigh. So what is summed for those is reduced first, at each position, beside the weights.
        """
        check.channels_first(self, part.whole, self.num_features, 3)
        with part.within(self):
            exact = statistics.accurate(part.local)
            branches = {}
            for name, hidden in self._hidden(part, exact.flatten(2)).items():
                expand: Any = self.get_submodule(f"{name}_expand")
                weight, bias = (part.rows(each.to(hidden.dtype)) for each in (expand.weight, expand.bias))
                branches[name] = F.linear(self._activate(name, hidden), weight, bias)
            return self._fuse(exact, branches).to(part.local.dtype)

    def _hidden(self, part: Parts, x: Tensor) -> dict[str, Tensor]:
        """What each branch reduces the context of all parts to."""
        layers: list[Any] = [self.get_submodule(f"{name}_reduce") for name in self.fusion]
        reduce = torch.cat([layer.weight for layer in layers]).to(x.dtype)
        space = range(2, part.whole.ndim)
        if self.pooling == "avg":
            hidden = part.product(reduce, (part.total(space, x.sum(-1))[0] / part.size(space)).to(x.dtype))
        elif part.along((1,)):
            both = part.product(torch.cat([self.mask.weight.to(x.dtype), reduce]), x)
            hidden = self._weighted(part, both[:, 1:], both[:, :1].mT + self.mask.bias.to(x.dtype), space)
        else:
            hidden = part.product(reduce, self._weighted(part, x, self.mask(x.mT), space))
        bias = torch.cat([layer.bias for layer in layers]).to(x.dtype)
        sizes = [layer.out_features for layer in layers]
        return dict(zip(self.fusion, (hidden + bias).split(sizes, 1), strict=True))

    def _weighted(self, part: Parts, x: Tensor, logits: Tensor, space: range) -> Tensor:
        """The sum of x over the positions of all parts, weighted by the softmax of their logits."""
        own = logits.detach().amax(1, keepdim=True) if x.shape[-1] else x.new_full((len(x), 1, 1), -torch.inf)
        powers = (logits - own).exp()
        sums = torch.cat([own, powers.sum(1, keepdim=True), x @ powers], 1).squeeze(-1)
        most, total, weighted = part.stacked(sums, space).split([1, 1, x.shape[1]], 2)
        share = (most - most.amax(0)).exp().detach()
        return (share * weighted).sum(0) / (share * total).sum(0)

    def _context(self, x: Tensor) -> Tensor:
        if self.pooling == "avg":
            return x.mean(-1)
        attention = torch.softmax(self.mask(x.mT), 1)
        return (x @ attention).squeeze(-1)

    def _activate(self, name: str, hidden: Tensor) -> Tensor:
        return torch.relu(self.get_submodule(f"{name}_norm")(hidden))

    def _fuse(self, y: Tensor, branches: dict[str, Tensor]) -> Tensor:
        if "mul" in branches:
            y = ops.affine(y, torch.sigmoid(branches["mul"]))
        if "add" in branches:
            y = ops.affine(y, None, branches["add"])
        return y


def _names(owner: object, fusion: Sequence[str]) -> tuple[str, ...]:
    names = (fusion,) if isinstance(fusion, str) else tuple(fusion)
    for name in names:
        check.choice(owner, "fusion", name, ("add", "mul"))
    if not names or len(set(names)) < len(names):
        raise ValueError(f"GCBlock: fusion must name 'add', 'mul' or both, not {fusion!r}")
    return names
