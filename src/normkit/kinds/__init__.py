"""How a thing of each kind is built small, called and saved, and what can be asked of it.

A method is a class or a function of one of few kinds. The kind is the class attribute ``kind`` of its base class, so a
method's file never names it:

=================  ==============================  ==============================================================
kind               base class                      called as
=================  ==============================  ==============================================================
norm               :class:`normkit.norm.Norm`      ``y = norm(x, ...)``, where a LayerNorm could stand
core               ``attention.AttentionCore``     ``y = core(q, k, v, mask)``
block              ``residual.Block``              ``x = block(x)``, around sublayers
whole layer        ``residual.WholeLayer``         ``x = layer(x)``, a placement that reaches inside its sublayers
layer              :class:`Method`                 ``y = layer(x, ...)``, any other module
parametrization    :class:`Parametrization`        ``weight = parametrization(raw)``
loss               :class:`Loss`                   ``scalar = loss(x, ...)``
transform          :class:`Transform`              ``y, log_det = transform(x)``, and ``inverse``
optimizer          ``gradient.Optimizer``          ``optimizer.step()``; any of torch is one too
adapter            :class:`Adapter`                ``logits = adapter(x)``, around a model; each call learns
fitted             :class:`Fitted`                 ``fit(...)`` or ``update(...)``, then ``y = fitted(x, ...)``
estimator          :class:`Estimator`              ``fit(...)``, then a call; no module
text               :class:`Text`                   ``method("...")``, and by name; strings in, strings or records out
function           none                            ``y = function(x, ..., option=...)``
=================  ==============================  ==============================================================
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from normkit.kinds.adapter import ADAPTER, Adapter
from normkit.kinds.fitted import FITTED, Fitted
from normkit.kinds.function import FUNCTION, Estimator, beside
from normkit.kinds.guard import Guard, make_guard
from normkit.kinds.kind import CONTRACT, Kind, Subject, exemption
from normkit.kinds.module import (
    BLOCK,
    CORE,
    LAYER,
    LOSS,
    NORM,
    PARAMETRIZATION,
    Loss,
    Method,
    Parametrization,
    Transform,
)
from normkit.kinds.optimizer import OPTIMIZER
from normkit.kinds.strings import TEXT, Text

__all__ = [
    "ADAPTER",
    "BLOCK",
    "CONTRACT",
    "CORE",
    "FITTED",
    "FUNCTION",
    "LAYER",
    "LOSS",
    "NORM",
    "OPTIMIZER",
    "PARAMETRIZATION",
    "TEXT",
    "Adapter",
    "Estimator",
    "Fitted",
    "Guard",
    "Kind",
    "Loss",
    "Method",
    "Parametrization",
    "Subject",
    "Text",
    "Transform",
    "beside",
    "exemption",
    "kind_of",
    "make_guard",
]


def kind_of(entry: Any) -> Kind:
    """Tell the kind of a class or function; a plain module of a user's is taken as a norm.

    >>> kind_of(torch.optim.SGD).name, kind_of(nn.LayerNorm).name, kind_of(len).name
    ('optimizer', 'norm', 'function')
    """
    if isinstance(entry, type):
        own = getattr(entry, "kind", None)
        if isinstance(own, Kind):
            return own
        for base, kind in ((torch.optim.Optimizer, OPTIMIZER), (nn.Module, NORM)):
            if issubclass(entry, base):
                return kind
        raise TypeError(
            f"{entry.__name__} is of no kind: it must be a module, an optimizer or have a base of normkit.kinds"
        )
    if not callable(entry) or inspect.ismodule(entry):
        raise TypeError(f"a method is a class or a function, not {entry!r}")
    return FUNCTION
