"""Goldens that record a plain calculation, no method of the catalogue: name -> factory of a module that does the call."""

from collections.abc import Callable

from torch import nn

from normkit import statistics
from normkit.surgery.fold import fold_batchnorm


class Call(nn.Module):
    """A function as a module, its keyword arguments fixed."""

    def __init__(self, function: Callable, **fixed):
        super().__init__()
        self.function, self.fixed = function, fixed

    def forward(self, *inputs):
        """Call the function."""
        return self.function(*inputs, **self.fixed)


FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "fold-batchnorm": lambda layer, **fixed: Call(fold_batchnorm, layer=layer, **fixed),
    "merge-statistics": lambda **fixed: Call(statistics.merge, **fixed),
}
