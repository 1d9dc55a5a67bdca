"""CEMA's loss: a small model at the edge adapted by a large one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._pit import fill
from normkit.inference._scores import scores

NAME = "cema-loss"


@method(
    NAME,
    paper="Towards Robust and Efficient Cloud-Edge Elastic Model Adaptation via Selective Entropy Distillation (Chen "
    "et al., 2024), arXiv 2402.17316",
    shape="N C",
    over="C",
    inputs={"teacher_logits": "N C"},
    invariant=("shift",),
    exempt={"gradcheck": "the teacher is a constant"},
)
def cema_loss(
    logits: Tensor,
    teacher_logits: Tensor,
    *,
    alpha: float = 3.0,
    beta: float = 3.0,
    gamma: float = 1.0,
    temperature: float = 1.0,
    max_entropy: float | None = None,
) -> Tensor:
    """Add the entropy of a model at test time to its divergence from a teacher and from the teacher's choice.

    For norm gains and biases of a model at the edge, on samples that ``cema-filter`` kept. With H_s and H_t the
    entropies of student and teacher, w(H) = exp(max_entropy - H) a constant, and q, p at the temperature T,

        alpha mean w(H_s) H_s + beta T² mean w(H_t) KL(q | p) + gamma mean w(H_t) CE(student, arg max teacher)

    Args:
        logits: of the model, (N, C).
        teacher_logits: of the teacher, (N, C), a constant.
        alpha, beta, gamma: weights of the parts.
        temperature: T, of the divergence alone.
        max_entropy: surer samples weigh more, by how far below it they are; None: all weigh 1.

    Towards Robust and Efficient Cloud-Edge Elastic Model Adaptation (Chen et al., 2024), arXiv 2402.17316.
    """
    student = scores(NAME, "logits", logits, (None, None))
    teacher = scores(NAME, "teacher_logits", teacher_logits, logits.shape, logits).detach().to(student.dtype)
    fill(NAME, "logits", logits)
    parts = [check.number(NAME, key, value) for key, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma))]
    t = check.number(NAME, "temperature", temperature, 0.0, open_low=True)
    most = None if max_entropy is None else check.number(NAME, "max_entropy", max_entropy)
    own, other = entropy(student), entropy(teacher)
    p, q = torch.log_softmax(student / t, 1), torch.log_softmax(teacher / t, 1)
    divergence = (q.exp() * (q - p)).sum(1) * t**2
    chosen = F.cross_entropy(student, teacher.argmax(1), reduction="none")
    weighed = (_weight(own, most) * own, _weight(other, most) * divergence, _weight(other, most) * chosen)
    return sum(part * each.mean() for part, each in zip(parts, weighed, strict=True)).to(logits.dtype)  # type: ignore[union-attr]


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each row's softmax (N,)."""
    known = torch.log_softmax(logits, 1)
    return -(known.exp() * known).sum(1)


def _weight(entropy: Tensor, most: float | None) -> Tensor:
    return torch.ones_like(entropy) if most is None else (most - entropy.detach()).exp()
