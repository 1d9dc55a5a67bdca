"""What a model is fed: mean and deviation of its first tensor, where that is floating, and how its features differ.

``data_fed`` is the size that it has where the first layer that takes as many numbers is fed it, else
where the first layer is fed, as of patches that overlap.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit.watching.signals.signal import local_tensors, moments, some, vector
from normkit.watching.store import BESIDE, LARGEST, MEAN, MISSING

NUMBERS = {"data_mean": MEAN, "data_deviation": MEAN}
FEATURES = {"data_varies": LARGEST, "data_largest": LARGEST, "data_feature": BESIDE, "data_usual": MEAN}
FED = {"data_fed": MEAN}
FEW = 4  # samples, and features: fewer say nothing


def read(x: Tensor) -> Tensor | None:
    """Return mean and standard deviation; integers, such as words, are not read."""
    if not x.is_floating_point() or not x.numel():
        return None
    mean, variance = moments(some(x).reshape(-1), [0])
    return vector(mean, variance.sqrt())


def features(x: Tensor) -> Tensor | None:
    """Return whether samples differ, and of a table the size of the largest feature, which it is, and the median size.

    >>> features(torch.tensor([[1.0, 2.0, 3.0, 80.0]] * 4)).tolist()
    [0.0, 80.0, 3.0, 2.0]
    """
    if x.dim() < 2 or len(x) < FEW or not x.numel():
        return None
    x = some(x)
    varies = (x != x[:1]).any()
    if x.dim() != 2 or x.shape[1] < FEW:
        return vector(varies, *torch.full((3,), MISSING, device=x.device))
    largest, which = (sizes := x.square().mean(0).sqrt()).max(0)
    return vector(varies, largest, which, sizes.median())


def size(x: Tensor) -> Tensor:
    """Return the root mean square."""
    return some(x).square().mean().sqrt()[None]


def first_input(args: Any, kwargs: Any) -> Tensor | None:
    """Return the first tensor that a model is called with; a floating one behind words is a mask.

    >>> import torch
    >>> first_input((torch.ones(2), torch.zeros(3)), {}), first_input((), {"x": [torch.zeros(1)]})
    (tensor([1., 1.]), tensor([0.]))
    """
    return next((x for x in local_tensors((args, kwargs)) if x.dim()), None)
