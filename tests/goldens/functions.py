"""Goldens of calculations that ``create`` does not build in the recording's form: name -> factory of a module."""

from collections.abc import Callable
from functools import partial

from torch import nn

from normkit import statistics
from normkit.attention import attention_entropy as entropy
from normkit.attention import attention_separation as separation
from normkit.surgery.fold import fold_batchnorm


class Call(nn.Module):
    """A function, or an object, as a module: arguments fixed, ``named`` functions or its own methods to be called."""

    def __init__(self, function: Callable, named: dict[str, Callable] | None = None, **fixed):
        super().__init__()
        self.function, self.fixed = function, fixed
        for name, other in (named or {}).items():
            setattr(self, name, other)

    def forward(self, *inputs):
        """Call the function."""
        return self.function(*inputs, **self.fixed)

    def __getattr__(self, name: str):
        """Find a method of the object."""
        if name != "function" and hasattr(self.__dict__.get("function"), name):
            return getattr(self.function, name)
        return super().__getattr__(name)


def separate(top: int, temperature: float = 1.0, step: float = 1e-3) -> nn.Module:
    """The measures of separation, with one set of arguments for all."""
    named = {
        "sensitivity": partial(separation.sensitivity, temperature=temperature, step=step),
        "jacobian_norm": partial(separation.jacobian_norm, temperature=temperature),
    }
    return Call(separation.attention_separation, named, top=top)


BOUNDS = {"lower_bound": entropy.entropy_lower_bound, "spectral_bound": entropy.spectral_bound}

FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "attention-entropy": lambda **fixed: Call(entropy.attention_entropy, BOUNDS, **fixed),
    "attention-separation": separate,
    "fold-batchnorm": lambda layer, **fixed: Call(fold_batchnorm, layer=layer, **fixed),
    "merge-statistics": lambda **fixed: Call(statistics.merge, **fixed),
}
