"""NKD: knowledge distillation in which the wrong classes are normalized among themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.loss._classes import labels, without
from normkit.statistics import accurate


@method(
    "nkd",
    paper="From Knowledge Distillation to Self-Knowledge Distillation (Yang et al., 2023), arXiv 2303.13005",
    shape="N C",
    over="C",
    inputs={"teacher_logits": "N C", "target": "N : index C"},
    invariant=("shift",),
    exempt=dict.fromkeys(
        ("gradcheck", "higher-derivatives"), "the teacher's share of the right class carries no gradient"
    ),
)
class NKD(Loss):
    """Compare student and teacher on the right class, and on the others normalized without it.

    For a small classifier that learns from a large one; plain cross-entropy is added outside. Without a teacher take
    ``uskd``.

    With y the right class, p = softmax, S and T the softmax at temperature t over the C - 1 other classes of student
    and teacher,

        - mean teacher_p[y] log student_p[y]  -  gamma t^2 mean sum_j T_j log S_j

    Args:
        temperature: t, of the other classes only.
        gamma: the weight of the other classes.

    ``loss(logits, teacher_logits, target)``: (N, C), (N, C), and classes int64 (N,) or soft labels (N, C), of which the
    largest counts. The teacher's share of the right class carries no gradient.

    From Knowledge Distillation to Self-Knowledge Distillation (Yang et al., 2023), arXiv 2303.13005.
    """

    def __init__(self, temperature: float = 1.0, gamma: float = 1.5):
        super().__init__()
        self.temperature = check.number(self, "temperature", temperature, 0.0, open_low=True)
        self.gamma = check.number(self, "gamma", gamma)

    def forward(self, logits: Tensor, teacher_logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "logits", logits, (None, None), logits)
        check.values(self, "teacher_logits", teacher_logits, logits.shape, logits)
        y = labels(self, target, logits).unsqueeze(1)
        student, teacher = accurate(logits), accurate(teacher_logits)
        right = torch.softmax(teacher, 1).gather(1, y).detach() * torch.log_softmax(student, 1).gather(1, y)
        others, those = (without(z, y) / self.temperature for z in (student, teacher))
        wrong = (torch.softmax(those, 1) * torch.log_softmax(others, 1)).sum(1)
        loss = -right.mean() - self.gamma * self.temperature**2 * wrong.mean()
        return loss.to(logits.dtype)
