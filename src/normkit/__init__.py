"""Every normalization method of deep learning in one place: verified, fast, swappable in one line.

>>> import normkit as nk
>>> norm = nk.RMSNorm(768)                 # a plain module
>>> norm = nk.create("derf", 768)          # the same catalogue by name, as a config does
>>> "powernorm" in nk.methods(room="activation")
True
"""

import importlib

from normkit import catalog, ops, statistics
from normkit.catalog import Card, card, create, method, methods
from normkit.kinds import Estimator, Loss, Method, Parametrization, Transform
from normkit.norm import Norm

__version__ = "0.1.0"
__all__ = [
    "Card",
    "Estimator",
    "Loss",
    "Method",
    "Norm",
    "Parametrization",
    "Transform",
    "card",
    "catalog",
    "create",
    "method",
    "methods",
    "ops",
    "statistics",
]

# what is no method of the catalogue: name -> the module that it is imported from at the first look-up
_LATER = {
    "Decoder": "normkit.residual.transformer",
    "Encoder": "normkit.residual.transformer",
    "EncoderDecoder": "normkit.residual.transformer",
    "Placement": "normkit.residual._stream",
    "deepnorm_constants": "normkit.residual.deepnorm",
    "preset": "normkit.residual.presets",
    "projection_fraction": "normkit.attention.unselectable_keys",
}


def __getattr__(name: str):
    """Find a method's class or function by its Python name; its file is imported at the first look-up."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    found = catalog.entry_named(name)
    if found is None:
        raise AttributeError(f"module 'normkit' has no attribute {name!r}")
    return found


def __dir__():
    return sorted([*globals(), *_LATER, *catalog.entry_names()])
