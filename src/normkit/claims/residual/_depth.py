"""Gradients of deep residual networks at their start."""

from __future__ import annotations

import torch
from torch import nn

from normkit.claims.measures import randn

WIDTH = 64


def sublayer() -> nn.Sequential:
    """Two layers with Xavier's weights and a ReLU between."""
    layers = nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU(), nn.Linear(WIDTH, WIDTH, bias=False)
    for layer in layers[::2]:
        nn.init.xavier_normal_(layer.weight)
    return nn.Sequential(*layers)


def gradients(kind, depth: int) -> torch.Tensor:
    """The length of the gradient of each block's feedforward layer; a pre-norm network has a norm at its end."""
    blocks = [kind(dim=WIDTH, attention=sublayer(), feedforward=sublayer()).double() for _ in range(depth)]
    x = randn(32, WIDTH)
    for block in blocks:
        x = block(x)
    if kind.card.name == "pre-norm":
        x = torch.nn.functional.layer_norm(x, (WIDTH,))
    weights = [block.feedforward[2].weight for block in blocks]
    slopes = torch.autograd.grad((x * torch.randn_like(x)).sum(), weights)
    return torch.stack([slope.norm() for slope in slopes])
