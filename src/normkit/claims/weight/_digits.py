"""A small network of layers without biases, trained on scikit-learn's digits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.claims.measures import randn
from normkit.optional import library

SIZES = (64, 96, 64, 32, 10)
TRAINING = 500  # samples; the others are held out


def digits() -> tuple[Tensor, Tensor]:
    """The images of digits in float64, from 0 to 1, and their labels, shuffled."""
    dataset = library("sklearn.datasets").load_digits()
    order = torch.randperm(len(dataset.target))
    return torch.from_numpy(dataset.data).double()[order] / 16, torch.from_numpy(dataset.target)[order]


def started(sizes: Sequence[int] = SIZES) -> list[Tensor]:
    """Weights by He's start."""
    return [randn(outs, ins) * (2 / ins) ** 0.5 for ins, outs in itertools.pairwise(sizes)]


def passed(weights: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """The input of each layer, and the logits."""
    inputs = [x]
    for place, weight in enumerate(weights, 1):
        y = F.linear(inputs[-1], weight)
        inputs.append(y if place == len(weights) else torch.relu(y))
    return inputs


def trained(
    weights: Sequence[Tensor],
    x: Tensor,
    labels: Tensor,
    masks: Sequence[Tensor] = (),
    steps: int = 100,
    lr: float = 3e-3,
) -> list[Tensor]:
    """Weights after steps of Adam on all samples, multiplied by fixed masks if there are any."""
    masks = [mask.float() for mask in masks] or [torch.ones(()) for _ in weights]
    x, raw = x.float(), [weight.float().requires_grad_() for weight in weights]
    optimizer = torch.optim.Adam(raw, lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        logits = passed([weight * mask for weight, mask in zip(raw, masks, strict=True)], x)[-1]
        F.cross_entropy(logits, labels).backward()
        optimizer.step()
    return [(weight * mask).detach().double() for weight, mask in zip(raw, masks, strict=True)]
