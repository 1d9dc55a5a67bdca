"""Multi-aspect fusion: several embeddings of a title made one by attention, and scored by a logic that is learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate, full_precision
from normkit.text.training._layers import run

SHARPNESS = 10.0
LOGICAL = [f"{part}.{i}.{of}" for part in ("negate", "conjoin") for i in (0, 2) for of in ("weight", "bias")]
LOGIC = "trained by score, not by the forward pass"


@method(
    "multi-aspect-fusion",
    paper="JAMES: Normalizing Job Titles with Multi-Aspect Graph Embeddings and Reasoning (Yamashita et al., 2022), "
    "arXiv 2202.10739",
    evidence="abstract",
    shape="N C",
    inputs={"aspects[1]": "N 5", "aspects[2]": "N 3"},
    example={"dims": lambda features: [features, 5, 3], "dim": 6},
    provenance="no code is published, and the paper's abstract alone was read: the plainest equations that fit it",
    exempt={
        **{f"gradients {part}": LOGIC for part in LOGICAL},
        "moves truth": "it is drawn once, and fixed",
        "onnx": "torch.onnx takes no variable number of inputs",
    },
)
class MultiAspectFusion(Method):
    """Fuse several embeddings of each sample into one by attention to those that agree, and score pairs of results.

    For titles that are known from a graph, from a language model and by their syntax, and that are matched with normal
    ones. For each sample, with H_i = tanh(project_i(aspect_i)) and a learned matrix A,

        L_ij = tanh(H_iᵀ A H_j)
        attention = softmax over i of max_j L_ij,    fused = sum_i attention_i H_i

    the maximum over j = i too. :meth:`score` says whether a title implies a candidate, not(title and not candidate),
    by two learned networks, of which the second depends on the order: sigmoid(10 cos(that, truth)).

    Args:
        dims: the width of each aspect.
        dim: the width of the result.

    ``module(*aspects)``: (N, dims[i]) each -> fused (N, dim) and attention (N, A); ``module.score(title, candidate)``:
    (N, dim) each -> (N,) in (0, 1), to be ranked. State: ``truth`` is a fixed random vector.

    JAMES (Yamashita et al., 2022), arXiv 2202.10739.
    """

    truth: Tensor

    def __init__(self, dims: Sequence[int], dim: int):
        super().__init__()
        self.dims = [check.size(self, "dims", width) for width in dims]
        if not self.dims:
            raise ValueError("MultiAspectFusion: dims must have the width of at least one aspect")
        self.dim = check.size(self, "dim", dim)
        self.project = nn.ModuleList(nn.Linear(width, dim) for width in self.dims)
        self.affinity = nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim, dim)))
        self.negate = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.conjoin = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.register_buffer("truth", torch.randn(dim))

    def forward(self, *aspects: Tensor) -> tuple[Tensor, Tensor]:
        """Return the fused embeddings and how much of each aspect is in them."""
        self._check_aspects(aspects)
        pairs = zip(self.project, aspects, strict=True)
        h = torch.stack([torch.tanh(accurate(run(layer, x))) for layer, x in pairs], 1)
        with full_precision(h):
            alike = torch.tanh(h @ accurate(self.affinity).to(h.dtype) @ h.mT)
        attention = torch.softmax(alike.amax(2), 1)
        fused = (attention.unsqueeze(-1) * h).sum(1)
        return fused.to(aspects[0].dtype), attention.to(aspects[0].dtype)

    def _check_aspects(self, aspects: Sequence[Tensor]) -> None:
        if len(aspects) != len(self.dims):
            raise ValueError(f"MultiAspectFusion: aspects must be {len(self.dims)} tensors, not {len(aspects)}")
        for place, (x, width) in enumerate(zip(aspects, self.dims, strict=True)):
            check.values(self, f"aspects[{place}]", x, (None, width), x)
            check.shape(self, f"aspects[{place}]", x, (len(aspects[0]), width), aspects[0])

    def score(self, title: Tensor, candidate: Tensor) -> Tensor:
        """Return how much each title implies its candidate."""
        check.values(self, "title", title, (None, self.dim), title)
        check.values(self, "candidate", candidate, title.shape, title)
        both = self._logic(self.conjoin, torch.cat([title, self._logic(self.negate, candidate)], -1))
        implied = accurate(self._logic(self.negate, both))
        cosine = torch.cosine_similarity(implied, accurate(self.truth).to(implied.dtype), dim=-1)
        return torch.sigmoid(SHARPNESS * cosine).to(title.dtype)

    def _logic(self, network: nn.Sequential, x: Tensor) -> Tensor:
        return run(network[2], torch.relu(run(network[0], x))).to(x.dtype)
