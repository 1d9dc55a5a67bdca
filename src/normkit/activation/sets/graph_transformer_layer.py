"""The graph transformer layer: attention along edges, with its scores clamped, and batch norm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.activation.batch.batchnorm import BatchNorm
from normkit.activation.sets._graphs import sum_by
from normkit.activation.token.layernorm import LayerNorm
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate

CLAMP = 5.0  # of the scores
EDGE_EPS = 1e-6  # added to the sum of the weights, with edge features only
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batchnorm": BatchNorm,
    "layernorm": LayerNorm,
    "none": lambda dim: nn.Identity(),
}


@method(
    "graph-transformer-layer",
    paper="A Generalization of Transformer Networks to Graphs (Dwivedi, Bresson, 2020), arXiv 2012.09699",
    shape="N C",
    over="E",
    inputs={"edge_index": "2 E : index N"},
    example={"heads": 2},
    exempt={
        "gradients out.bias": "the batch norm behind it takes it away",
        "gradients down.bias": "the batch norm behind it takes it away",
        "empty": "without nodes there is nothing for an edge to join",
    },
)
class GraphTransformerLayer(Method):
    """Let each node average its neighbours' values by clamped softmax scores, and normalize after each sublayer.

    For graphs whose nodes should attend along their edges only, at a cost that follows the number of edges. It knows no
    positions: the paper adds Laplacian eigenvectors to the input. Where every node should see all others, take
    ``polynormer``.

    It is post-norm. For an edge s -> t and each head of h features,

        l = k_s . q_t / sqrt(h),    w = exp(clamp(l, -5, 5)),    a_t = sum of w v_s / sum of w, over edges into t
        x' = norm1(x + out(a)),     y = norm2(x' + down(relu(up(x'))))

    The clamp replaces the subtraction of the maximum; beyond it scores get no gradient. A node without an edge into it
    gives NaN: add self loops. With ``edges``, e = k_s * q_t / sqrt(h) * edge(edge_features) feature by feature, l its
    sum, and 1e-6 is added to the sum of w; e takes the place of a on the edges' own way, with parameters of its own.

    Args:
        dim: features of a node, and of an edge.
        heads: number of heads, a divisor of ``dim``.
        norm: ``"batchnorm"`` (over all nodes, or edges, of the batch of graphs), ``"layernorm"`` or ``"none"``.
        edges: take and return features of edges.
        bias: biases of query, key, value and edge.
        dropout: of a (and e) and behind the ReLU.

    ``layer(x, edge_index)``: x (N, dim), edge_index int64 (2, E) of sources and targets -> (N, dim); with ``edges``
    ``layer(x, edge_index, edge_features)`` -> (nodes (N, dim), edges (E, dim)).

    A Generalization of Transformer Networks to Graphs (Dwivedi, Bresson, 2020), arXiv 2012.09699.
    """

    edge: Callable[[Tensor], Tensor]
    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]
    value: Callable[[Tensor], Tensor]

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        norm: str = "batchnorm",
        edges: bool = False,
        bias: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.heads = check.size(self, "heads", heads)
        check.divides(self, "heads", heads, "dim", dim)
        self.edges = bool(edges)
        self.dropout = check.number(self, "dropout", dropout, 0, 1)
        make = NORMS[check.choice(self, "norm", norm, tuple(NORMS))]
        for name in ("query", "key", "value", *(["edge"] if edges else [])):
            self.add_module(name, Linear(dim, dim, bias=bool(bias)))
        for start in ("", "edge_") if edges else ("",):
            self.add_module(f"{start}out", Linear(dim, dim))
            self.add_module(f"{start}up", Linear(dim, 2 * dim))
            self.add_module(f"{start}down", Linear(2 * dim, dim))
            self.add_module(f"{start}norm1", make(dim))
            self.add_module(f"{start}norm2", make(dim))

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_features: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Pass a graph through the layer."""
        self._check(x, edge_index, edge_features)
        nodes = accurate(x)
        links = None if edge_features is None else accurate(edge_features).to(nodes.dtype)
        attended, between = self._attend(nodes, edge_index, links)
        y = self._rest("", nodes, attended).to(x.dtype)
        if links is None or edge_features is None:
            return y
        return y, self._rest("edge_", links, between).to(edge_features.dtype)

    def _check(self, x: Tensor, edge_index: Tensor, edge_features: Tensor | None) -> None:
        check.values(self, "x", x, (None, self.dim), x)
        check.index(self, "edge_index", edge_index, (2, None), x.shape[0], x)
        if (edge_features is not None) != self.edges:
            state = "missing" if self.edges else "given"
            raise ValueError(f"GraphTransformerLayer: edge_features is {state}, but edges={self.edges}")
        if edge_features is not None:
            check.values(self, "edge_features", edge_features, (edge_index.shape[1], self.dim), x)

    def _attend(self, x: Tensor, edge_index: Tensor, links: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the nodes gather, and with features of edges what these become before the exponential."""
        source, target = edge_index
        layers = self.query, self.key, self.value
        q, k, v = (accurate(layer(x)).unflatten(-1, (self.heads, -1)) for layer in layers)
        e = k[source] * q[target] / (self.dim // self.heads) ** 0.5
        if links is not None:
            e = e * self.edge(links).unflatten(-1, (self.heads, -1))
        w = e.sum(-1, keepdim=True).clamp(-CLAMP, CLAMP).exp()
        total = sum_by(w, target, x.shape[0]) + (0.0 if links is None else EDGE_EPS)
        return (sum_by(w * v[source], target, x.shape[0]) / total).flatten(1), e.flatten(1)

    def _rest(self, start: str, x: Tensor, a: Tensor) -> Tensor:
        """Residual, norm, feedforward, residual, norm."""
        out, up, down, norm1, norm2 = (getattr(self, start + name) for name in ("out", "up", "down", "norm1", "norm2"))
        x = norm1(x + out(F.dropout(a, self.dropout, self.training)))
        return norm2(x + down(F.dropout(torch.relu(up(x)), self.dropout, self.training)))
