"""GraphSAINT normalization: unbiased sums over sampled subgraphs."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "graphsaint-norm",
    paper="GraphSAINT: Graph Sampling Based Inductive Learning Method (Zeng et al., 2019), arXiv 1907.04931",
    shape="N : index 4",
    over="",
    inputs={
        "edge_count": "N",
        "node_count": "C",
        "num_subgraphs": "1",
        "train_mask": "C : bool",
        "eval_mask": "C : bool",
    },
    exempt={"empty": "without edges there still is a loss coefficient for every node"},
)
class GraphSAINTNorm(Norm):
    """Weight edges and nodes of sampled subgraphs by how rarely the sampler draws them.

    For graph networks trained on random subgraphs, so that sums over a subgraph estimate those over the whole graph.

    Count once, over many sampled subgraphs, how often each edge and node occurs; then

        aggregator[e] = node_count[target of e] / edge_count[e], clipped to [0, 1e4]
        loss[v] = num_subgraphs / node_count[v] / number of training nodes

    The first multiplies what an edge carries, see :meth:`aggregate`, the second each node's loss, see
    :meth:`weighted_loss`. An edge into a node that never occurred gets 0.1, another edge that never occurred 1e4. A
    node that never occurred counts as 0.1 times; a node of ``eval_mask`` has loss weight 0. Evaluation on the whole
    graph needs none of this.

    Args:
        num_nodes: nodes of the training graph.

    Inputs ``edge_target`` (E,) int64, the node that each edge goes to; ``edge_count`` (E,) and ``node_count``
    (num_nodes,); ``num_subgraphs``, one number; ``train_mask`` and ``eval_mask`` (num_nodes,) boolean. The result is
    the pair (aggregator, loss) of shapes (E,) and (num_nodes,).

    GraphSAINT: Graph Sampling Based Inductive Learning Method (Zeng et al., 2019), arXiv 1907.04931.

    Differs from the paper in: the aggregator is the reciprocal of the paper's, to be multiplied. As in the authors'
    code, a node in neither mask keeps its count as its loss weight.
    """

    def __init__(self, num_nodes: int):
        super().__init__()
        self.num_nodes = check.size(self, "num_nodes", num_nodes)

    def forward(
        self,
        edge_target: Tensor,
        edge_count: Tensor,
        node_count: Tensor,
        num_subgraphs: Tensor | float,
        train_mask: Tensor,
        eval_mask: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the coefficients of edges and of nodes."""
        check.index(self, "edge_target", edge_target, (None,), self.num_nodes, edge_target)
        edges = _counts(self, "edge_count", edge_count, edge_target.shape, edge_target)
        nodes = _counts(self, "node_count", node_count, (self.num_nodes,), edge_target)
        if not isinstance(num_subgraphs, Tensor):
            num_subgraphs = torch.tensor(check.number(self, "num_subgraphs", num_subgraphs, 0), device=nodes.device)
        one = (1,) if num_subgraphs.dim() else ()
        subgraphs = _counts(self, "num_subgraphs", num_subgraphs, one, edge_target).to(nodes.dtype)
        check.mask(self, "train_mask", train_mask, (self.num_nodes,), edge_target)
        check.mask(self, "eval_mask", eval_mask, (self.num_nodes,), edge_target)
        into = nodes[edge_target]
        kept = into < 1e4 * edges  # never for a count of 0
        clipped = torch.where(into == 0, torch.full_like(into, 0.1), 1e4)
        aggregator = torch.where(kept, into / torch.where(kept, edges, 1), clipped)
        count = torch.where(nodes == 0, 0.1, nodes)
        trained = subgraphs / count / train_mask.sum().clamp(min=1)
        loss = torch.where(train_mask, trained, torch.where(eval_mask, 0, count))
        return aggregator.to(edges.dtype), loss.to(nodes.dtype)

    def aggregate(
        self, x: Tensor, edge_target: Tensor, edge_source: Tensor, coefficient: Tensor, degree: Tensor
    ) -> Tensor:
        """Sum c[e] x[source of e] over the edges e into each node of a subgraph, and divide by the degree.

        ``x`` (M, F) and the edges' ends (E,) are numbered inside the subgraph; ``coefficient`` (E,) are the subgraph's
        entries of the aggregator; ``degree`` (M,) is that in the FULL training graph. A node of degree 0 gets 0.
        """
        check.values(self, "x", x, (None, None), x)
        check.index(self, "edge_target", edge_target, (None,), len(x), x)
        check.index(self, "edge_source", edge_source, edge_target.shape, len(x), x)
        weight = accurate(_counts(self, "coefficient", coefficient, edge_target.shape, x))
        degree = accurate(_counts(self, "degree", degree, x.shape[:1], x))
        carried = weight.unsqueeze(-1) * accurate(x)[edge_source]
        total = carried.new_zeros(x.shape).index_add(0, edge_target, carried)
        inverse = torch.where(degree == 0, 0, 1 / torch.where(degree == 0, 1, degree))
        return (inverse.unsqueeze(-1) * total).to(x.dtype)

    def weighted_loss(self, losses: Tensor, coefficient: Tensor) -> Tensor:
        """Sum the losses (M,) of a subgraph's nodes, each times its coefficient (M,); nothing is divided."""
        check.values(self, "losses", losses, (None,), losses)
        weight = _counts(self, "coefficient", coefficient, losses.shape, losses)
        return (accurate(losses) * accurate(weight)).sum().to(losses.dtype)


def _counts(owner: object, name: str, value: Tensor, sizes: tuple[int, ...], like: Tensor) -> Tensor:
    """Require real numbers of that shape; integers become floating-point."""
    check.shape(owner, name, value, sizes, like)
    if value.dtype is torch.bool or value.is_complex():
        raise TypeError(f"{type(owner).__name__}: {name} must hold real numbers, not {value.dtype}")
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())
