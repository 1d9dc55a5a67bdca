"""LayerNorm tuning: one gain and shift per task, chosen by the nearest key."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "layernorm-tuning",
    paper="On the Effectiveness of LayerNorm Tuning for Continual Learning in Vision Transformers "
    "(De Min et al., 2023), arXiv 2308.09610",
    shape="B P C",
    over="C",
    inputs={"task_ids": "B : index 3"},
    example={"num_tasks": 3},
    invariant=("shift", "scale"),
    exempt={
        "gradients key": "the keys are trained by key_similarity, not by the forward pass",
        "moves current_task": "next_task moves it",
    },
)
class LayerNormTuning(Norm):
    """Give each token zero mean and unit variance, then the gain and shift of its sample's task.

    For a pretrained vision transformer that learns one task after another, its other weights frozen. For a condition
    that is no fixed set of tasks, take ``adaptive-layernorm``.

    With h the layer norm of x without gain and shift,

        y = h * weight[task] + bias[task]

    At inference the task is unknown: :meth:`select` takes the one whose ``key`` is nearest by cosine to the sample's
    features, which :meth:`key_similarity` trains. Every row of weight and bias starts as 1 and 0, or as the pretrained
    layer's when that is copied into it; keys start uniform in [-1, 1].

    Args:
        dim: C, the size of the last axis.
        num_tasks: rows of weight, bias and key.
        eps: added to the biased variance under the root.

    Input x ``(B, P, C)`` and task_ids ``(B,)`` int64, one task for all P tokens of a sample.

    On the Effectiveness of LayerNorm Tuning for Continual Learning in Vision Transformers (De Min et al., 2023),
    arXiv 2308.09610.

    Differs from the authors' code in: each module carries its own keys. To share one selection, select with one
    module's keys and hand its task_ids to all.
    """

    current_task: Tensor

    def __init__(self, dim: int, *, num_tasks: int, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.num_tasks = check.size(self, "num_tasks", num_tasks)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(num_tasks, dim))
        self.bias = nn.Parameter(torch.zeros(num_tasks, dim))
        self.key = nn.Parameter(torch.empty(num_tasks, dim).uniform_(-1, 1))
        self.register_buffer("current_task", torch.tensor(0))

    def forward(self, x: Tensor, task_ids: Tensor) -> Tensor:
        """Normalize ``x`` with the gain and shift of each sample's task."""
        check.values(self, "x", x, (None, None, self.dim), x)
        check.index(self, "task_ids", task_ids, x.shape[:1], self.num_tasks, x)
        h = ops.row_norm(statistics.accurate(x), rule=self.rule)
        return (h * self.weight[task_ids].unsqueeze(1) + self.bias[task_ids].unsqueeze(1)).to(x.dtype)

    @torch.no_grad()
    def select(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the task, up to the current one, with the key nearest to features (B, C), and the cosine, (B,)."""
        similarity = self._unit(features) @ _unit(self.key).T
        unseen = torch.arange(self.num_tasks, device=similarity.device) > self.current_task
        best = similarity.masked_fill(unseen, -torch.inf).max(dim=1)
        return best.indices, best.values

    def key_similarity(self, features: Tensor) -> Tensor:
        """Return the mean cosine of features (B, C) with the current task's key; its negative trains the key."""
        key = self.key.index_select(0, self.current_task.view(1))
        return (self._unit(features) * _unit(key)).sum(-1).mean()

    @torch.no_grad()
    def next_task(self, *, copy_key: bool = False) -> None:
        """Go on to the next task; its gain and shift, and with ``copy_key`` its key, start as the previous one's."""
        task = int(self.current_task) + 1
        if task == self.num_tasks:
            raise ValueError(
                f"LayerNormTuning: there is no next task, the last of num_tasks={self.num_tasks} is reached"
            )
        for rows in (self.weight, self.bias, *([self.key] if copy_key else [])):
            rows[task] = rows[task - 1]
        self.current_task += 1

    def _unit(self, features: Tensor) -> Tensor:
        check.values(self, "features", features, (None, self.dim), self.key)
        return _unit(features)


def _unit(x: Tensor) -> Tensor:
    return F.normalize(statistics.accurate(x), dim=-1)
