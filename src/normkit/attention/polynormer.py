"""Polynormer: global linear attention of a graph, multiplied with its input."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog, check, statistics
from normkit.attention.core import Mixer
from normkit.catalog import method
from normkit.layers import Linear

Join = Callable[[Tensor], Tensor]


@method(
    "polynormer",
    paper="Polynormer: Polynomial-Expressive Graph Transformer in Linear Time (Deng et al., 2024), arXiv 2403.01232",
    shape="N C",
    over="N",
    example={"heads": 2},
)
class Polynormer(Mixer):
    """Let every node attend to all nodes in linear time, and multiply what it gets with a linear map of itself.

    For classifying the nodes of one large graph where far nodes matter, at linear cost. It is the global half of the
    authors' model and sees no edges; ``graph-transformer-layer`` attends along them.

    Each layer doubles the polynomial degree of the features. For i < layers, with k = sigmoid(key(x)), q = k or
    sigmoid(query(x)), v = value(x), per head,

        a = q (kᵀ v) / (q · sum over the nodes of k)
        x <- relu(output(LayerNorm(a) * (hidden(x) + b)))

    b is ``sigmoid(beta_i)``, or ``beta_i`` where it is given. One ``output`` serves all layers. Channel c belongs to
    head c mod heads.

    Args:
        dim: heads times the features of a head.
        heads: number of heads, a divisor of ``dim``.
        layers: number of layers.
        beta: first value of ``beta`` (layers, dim); if negative it starts at 0, under a sigmoid. The authors draw
            it from Xavier's normal distribution before training.
        shared: let queries be the keys.
        sync: join the sums over the nodes of all processes, where one graph is spread over several.
        process_group: the processes to join, default all.
        eps: of the LayerNorm, added to the variance.

    ``module(x)``: x (nodes, dim), one graph. Dropout after each layer is the caller's; so is the local part, a
    graph attention that the authors train first.

    Polynormer: Polynomial-Expressive Graph Transformer in Linear Time (Deng et al., 2024), arXiv 2403.01232.
    """

    forms = (False,)
    linear = True

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 1,
        layers: int = 2,
        beta: float = -1,
        shared: bool = True,
        eps: float = 1e-5,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.heads = check.size(self, "heads", heads)
        check.divides(self, "heads", heads, "dim", dim)
        check.size(self, "layers", layers)
        self.bounded = check.number(self, "beta", beta) < 0
        self.eps = check.eps(self, eps)
        self.sync, self.process_group = bool(sync), process_group
        self.beta = nn.Parameter(torch.full((layers, dim), 0.0 if self.bounded else float(beta)))
        self.layers = nn.ModuleList(_Layer(dim, shared, self.eps) for _ in range(layers))
        self.output = Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Run all layers on the nodes of one graph."""
        check.floating(self, x)
        check.shape(self, "x", x, (None, self.dim))
        beta = self.beta.sigmoid() if self.bounded else self.beta
        y = statistics.accurate(x)
        with statistics.full_precision(x):
            for layer, gate in zip(self.layers, beta, strict=True):
                attended = layer.attend(y, self.heads, self._gather, self._sum)  # type: ignore[operator]
                y = self.output(attended * (layer.hidden(y) + gate.to(y.dtype))).relu()  # type: ignore
        return y.to(x.dtype)

    def _gather(self, x: Tensor) -> Tensor:
        return statistics.gather_over_processes(x, self.process_group) if self.sync else x.unsqueeze(0)

    def _sum(self, x: Tensor) -> Tensor:
        return statistics.sum_over_processes(x, self.process_group) if self.sync else x


class _Layer(nn.Module):
    def __init__(self, dim: int, shared: bool, eps: float):
        super().__init__()
        self.hidden, self.key, self.value = (Linear(dim, dim) for _ in range(3))
        self.query = None if shared else Linear(dim, dim)
        self.norm = catalog.create("layernorm", dim, eps=eps)

    def attend(self, x: Tensor, heads: int, gather: Join, add: Join) -> Tensor:
        """Average the values of all nodes by products of sigmoids, and normalize the result.

        Their logarithms are added, since no sum is left to divide by where all sigmoids of a head underflow. With t the
        logarithm of the sum of k over the nodes, a = softmax(log q + t) (exp(log k - t)ᵀ v).
        """
        k, v = F.logsigmoid(self.key(x)), self.value(x)
        q = k if self.query is None else F.logsigmoid(self.query(x))
        q, k, v = (part.unflatten(-1, (-1, heads)).permute(2, 0, 1) for part in (q, k, v))
        total = gather(k.logsumexp(-2, keepdim=True)).logsumexp(0)
        y = ((q + total).softmax(-1) @ add((k - total).exp().mT @ v)).permute(1, 2, 0).flatten(-2)
        return self.norm(y)
