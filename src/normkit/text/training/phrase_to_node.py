"""Phrase to node: a phrase's words mapped to where its concept lies among the nodes of a taxonomy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate
from normkit.text.training._layers import run

KINDS = ("lstm", "cnn", "linear")
WIDTHS = (1, 2, 3)


@method(
    "phrase-to-node",
    paper="Text2Node: a Cross-Domain System for Mapping Arbitrary Phrases to a Taxonomy (Soltani and Tomberg, 2019), "
    "arXiv 1905.01958",
    evidence="abstract",
    shape="N T C",
    over="T",
    inputs={"lengths": "N : index 1 6"},
    example={"node_dim": 6, "hidden": 3, "k": 3},
    provenance="no code is published and the paper was read in part: the pooling and the loss are ours",
)
class PhraseToNode(Method):
    """Map a phrase's word vectors to one vector in a fixed space, that of a taxonomy's nodes, and find the nearest.

    For phrases of concepts that were never trained: the nodes' vectors come from the graph (node2vec), the words' from
    text, and only the map between them is learned, on pairs; nowhere is a softmax over concepts.

        "lstm":    out of the last states, forward and backward, over each phrase's own length
        "cnn":     out of the maxima over time of relu(conv), widths 1, 2 and 3; words beyond the length are zeros
        "linear":  out of the mean of the words

    Args:
        word_dim: the width of the word vectors.
        node_dim: that of the nodes'.
        kind: ``"lstm"``, ``"cnn"`` or ``"linear"``.
        hidden: states in each direction, or channels of each width.
        k: how many nodes are found.

    ``module(words, lengths)``: (N, T, word_dim) and (N,), from 0 to T -> (N, node_dim); T is at least 3 for ``"cnn"``.
    ``module.loss(predicted, node)``: mean(1 - cos); ``module.nearest(predicted, nodes)``: the k nodes with the largest
    cosines, (score, index), (N, k) each.

    Text2Node (Soltani and Tomberg, 2019), arXiv 1905.01958.
    """

    def __init__(self, word_dim: int, node_dim: int, kind: str = "lstm", hidden: int = 300, k: int = 10):
        super().__init__()
        self.word_dim = check.size(self, "word_dim", word_dim)
        self.node_dim = check.size(self, "node_dim", node_dim)
        self.form = check.choice(self, "kind", kind, KINDS)
        self.hidden, self.k = check.size(self, "hidden", hidden), check.size(self, "k", k)
        if kind == "lstm":
            self.lstm = States(nn.LSTM(word_dim, hidden, bidirectional=True))
        elif kind == "cnn":
            self.conv = nn.ModuleList(nn.Conv1d(word_dim, hidden, width) for width in WIDTHS)
        read = {"lstm": 2 * hidden, "cnn": len(WIDTHS) * hidden, "linear": word_dim}[kind]
        self.out = nn.Linear(read, node_dim)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return where each phrase lies among the nodes."""
        check.values(self, "words", words, (None, None, self.word_dim), words)
        self._check_lengths(words, lengths)
        mask = torch.arange(words.shape[1], device=words.device) < lengths.unsqueeze(1)
        known = torch.where(mask.unsqueeze(-1), words, 0)
        read = {"lstm": self._states, "cnn": self._maxima, "linear": self._mean}[self.form]
        return run(self.out, read(known, lengths)).to(words.dtype)

    def _check_lengths(self, words: Tensor, lengths: Tensor) -> None:
        least = max(WIDTHS) if self.form == "cnn" else 1
        if words.shape[1] < least:
            raise ValueError(f"PhraseToNode: words must have at least {least} on axis 1, not {words.shape[1]}")
        check.index(self, "lengths", lengths, words.shape[:1], words.shape[1] + 1, words)

    def _states(self, words: Tensor, lengths: Tensor) -> Tensor:
        typed = words.to(self.out.weight.dtype)
        return torch.cat([self.lstm(typed, lengths), self.lstm(typed, lengths, "_reverse")], 1)

    def _maxima(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The largest answers of each filter, of the padding too."""
        turned = words.mT
        return torch.cat([torch.relu(run(layer, turned)).amax(2) for layer in self.conv], 1)

    def _mean(self, words: Tensor, lengths: Tensor) -> Tensor:
        return accurate(words).sum(1) / lengths.clamp(min=1).unsqueeze(1)

    def loss(self, predicted: Tensor, node: Tensor) -> Tensor:
        """Return how far, by the cosine, phrases lie from their nodes: a single number."""
        check.values(self, "predicted", predicted, (None, self.node_dim), predicted)
        check.values(self, "node", node, predicted.shape, predicted)
        cosines = torch.cosine_similarity(accurate(predicted), accurate(node), dim=1)
        return ((1 - cosines).sum() / max(len(cosines), 1)).to(predicted.dtype)

    def nearest(self, predicted: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines of the k nearest of all nodes, largest first, and which they are."""
        check.values(self, "predicted", predicted, (None, self.node_dim), predicted)
        check.values(self, "nodes", nodes, (None, self.node_dim), predicted)
        if len(nodes) < self.k:
            raise ValueError(f"PhraseToNode: nodes must be at least k={self.k}, not {len(nodes)}")
        a, b = (F.normalize(accurate(x), dim=1, eps=1e-8) for x in (predicted, nodes))
        score, index = (a @ b.to(a.dtype).mT).topk(self.k, 1)
        return score.to(predicted.dtype), index


class States(nn.Module):
    """The parameters of torch's LSTM, by their names, and its last states; torch's own is not compiled."""

    def __init__(self, lstm: nn.LSTM):
        super().__init__()
        self.hidden = lstm.hidden_size
        for name, parameter in lstm.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, words: Tensor, lengths: Tensor, direction: str = "") -> Tensor:
        """Return the last state (N, hidden) of one direction, each phrase over its own length."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        into, again, bias, shift = (getattr(self, f"{name}_l0{direction}") for name in names)
        mapped = F.linear(words, into, bias)
        h = c = mapped.new_zeros(len(words), self.hidden)
        for t in reversed(range(words.shape[1])) if direction else range(words.shape[1]):
            i, f, g, o = (mapped[:, t] + F.linear(h, again, shift)).chunk(4, 1)
            mask = (t < lengths).unsqueeze(1)
            moved = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.where(mask, torch.sigmoid(o) * torch.tanh(moved), h)
            c = torch.where(mask, moved, c)
        return h
