"""Gaussian classes, of which one is rare or was never seen in training, and small models of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.measures import randn

DIM, RARE, STEPS, RATE, LENGTH = 10, 10, 100, 0.1, 0.02
SEEN, UNSEEN, EACH, ATTRIBUTES, FEATURES, NOISE, RIDGE = 10, 5, 40, 16, 32, 1.0, 1.0


def rise(seed: int, many: int = 60 * RARE, normalized: bool = False) -> float:
    """The largest loss of the rare class in 100 steps on all samples, over that at the start, less 1."""
    counts, center = (many, RARE), randn(DIM)
    center = center / center.norm()
    x = torch.cat([randn(count, DIM) + side * center for count, side in zip(counts, (1, -1), strict=True)])
    labels = torch.arange(2).repeat_interleave(torch.tensor(counts))
    model = nn.Sequential(nn.Linear(DIM, 32), nn.Tanh(), nn.Linear(32, 2)).double()
    weights, curve = list(model.parameters()), []
    for _ in range(STEPS + 1):
        losses = F.cross_entropy(model(x), labels, reduction="none")
        curve.append(losses[labels == 1].mean().item())
        own = [losses[labels == label].sum() / len(labels) for label in (0, 1)]
        flat = torch.stack([flattened(torch.autograd.grad(loss, weights, retain_graph=True)) for loss in own])
        step = LENGTH * nk.per_class_gradient_normalization(flat) if normalized else RATE * flat.sum(0)
        with torch.no_grad():
            for weight, part in zip(weights, step.split([weight.numel() for weight in weights]), strict=True):
                weight.sub_(part.view_as(weight))
    return max(curve) / curve[0] - 1


def flattened(parts: tuple[Tensor, ...]) -> Tensor:
    """All numbers in a row."""
    return torch.cat([part.flatten() for part in parts])


def zero_shot(trained_on: int = SEEN) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of new samples of 15 classes, their labels, and which classes were seen.

    A ridge regression from features to the classes' attributes is fitted on the classes that were seen.
    """
    attributes = F.normalize(randn(SEEN + UNSEEN, ATTRIBUTES))
    centers = attributes @ randn(ATTRIBUTES, FEATURES)
    labels = torch.arange(SEEN + UNSEEN).repeat_interleave(EACH)
    known, new = (centers[labels] + NOISE * randn(len(labels), FEATURES) for _ in range(2))
    x, y = known[labels < trained_on], attributes[labels[labels < trained_on]]
    fitted = torch.linalg.solve(x.mT @ x + RIDGE * torch.eye(FEATURES, dtype=torch.float64), x.mT @ y)
    return new @ fitted @ attributes.mT, labels, torch.arange(SEEN + UNSEEN) < SEEN


def shares(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """How many samples of classes that were seen, and that were not, are right among all classes, of a hundred."""
    right = scores.argmax(1) == labels
    return tuple(100 * right[which].double().mean().item() for which in (labels < SEEN, labels >= SEEN))  # type: ignore
