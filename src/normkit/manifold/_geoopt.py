"""Points among the parameters of a model, as geoopt's optimizers want them."""

from __future__ import annotations

import importlib

from torch import nn

from normkit.manifold._definite import DefiniteNorm


def to_geoopt(model: nn.Module) -> int:
    """Let the positive definite parameters of norms be geoopt's, in place, so that its optimizers keep them definite.

    Return how many there are. Their values, names and ties stay, and so does a ``state_dict``; do it before an
    optimizer is made. Plain optimizers may step them out of the manifold. A norm then raises an error, or takes a
    negative eigenvalue for its least one.

    >>> import normkit as nk
    >>> model = nk.LieBN(4)
    >>> nk.manifold.to_geoopt(model)  # doctest: +SKIP
    1
    >>> optimizer = geoopt.optim.RiemannianAdam(model.parameters(), 1e-2)  # doctest: +SKIP
    """
    try:
        geoopt = importlib.import_module("geoopt")
    except ImportError as error:
        raise ValueError("to_geoopt needs geoopt: pip install geoopt") from error
    space, made = geoopt.SymmetricPositiveDefinite(), dict[nn.Parameter, nn.Parameter]()
    for module in model.modules():
        for name in module.points if isinstance(module, DefiniteNorm) else ():
            value = getattr(module, name)
            made[value] = geoopt.ManifoldParameter(value.detach(), manifold=space, requires_grad=value.requires_grad)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter in made:
                setattr(module, name, made[parameter])
    return len(made)
