"""What modules are made of that are almost a norm, each wrong in one thing only: `near_misses_*.py`."""

import torch
from torch import nn
from torch.nn import functional as F


def lists():
    """Return what is almost a norm and what is one, and how a class is entered in either."""
    misses, norms = {}, {}

    def near(cls):
        misses[cls.__name__] = cls
        return cls

    def true(name, **kwargs):
        def enter(cls):
            norms[cls.__name__] = cls, name, kwargs
            return cls

        return enter

    return misses, norms, near, true


class Rms(nn.Module):
    """What the others differ from."""

    def __init__(self, dim=12, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def unit(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self.unit(x) * self.weight


class Layer(nn.Module):
    def __init__(self, dim=12, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
