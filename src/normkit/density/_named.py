"""Whole flows by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.distributions import Distribution

from normkit import check
from normkit.density._flow import Flow, shape_of
from normkit.density._parts import Standard
from normkit.density._recipe import FlowSizes, options_of, refuse_others
from normkit.density.flows.ferumal import Reversed as _Turned  # noqa: F401  pickled flows have it here
from normkit.density.flows.jet import Flipped as _Flipped  # noqa: F401
from normkit.families import Family

FLOWS = Family("flow", "FLOW", "density/flows")


def flow(
    name: str,
    event: int | Sequence[int],
    *,
    depth: int | None = None,
    hidden: int = 64,
    context: int = 0,
    classes: int = 0,
    base: nn.Module | Distribution | None = None,
    memory: str = "kept",
    **options: Any,
) -> Flow:
    """Return a flow by name: a norm that is set from data, then its parts.

    Affine and spline parts of vectors, and those of ``jet``, begin at the identity.

    Args:
        name: of the files in ``density/flows``: couplings and autoregressive maps of vectors, images at several scales;
            ``normkit list --kind flow`` has them all, ``normkit show glow --kind flow`` tells the options of one.
        event: the length of a vector, or (channels, height, width).
        depth: how many parts; of ``glow``, at each level.
        hidden: the width of their networks.
        context: how many numbers the law depends on; of couplings and autoregressive flows.
        classes: how many labels it depends on; of these and tarflow.
        base, memory: as of :class:`Flow`.
        options: of the parts.

    >>> import torch, normkit as nk
    >>> flow = nk.density.flow("tarflow", (1, 4, 4), classes=3, hidden=16)
    >>> law = flow.law(torch.tensor([0, 2]), guidance=1.5)
    >>> law.sample((5,)).shape, law.log_prob(torch.zeros(1, 4, 4)).shape
    (torch.Size([5, 2, 1, 4, 4]), torch.Size([2]))
    """
    recipe = FLOWS[check.choice("flow", "name", name, tuple(FLOWS))]
    shape = shape_of(event)
    if len(shape) not in recipe.axes:
        expected = " or ".join({1: "a length", 3: "(channels, height, width)"}[axes] for axes in recipe.axes)
        raise ValueError(f"flow: event must be {expected} for {name!r}, not {event}")
    if context and classes:
        raise ValueError("flow: context and classes are not for one flow; append one-hot labels to the context")
    for option, count, field in (("context", context, "context"), ("classes", classes, "labels")):
        if count and not getattr(recipe, field):
            able = ", ".join(other for other, known in FLOWS.items() if getattr(known, field))
            raise ValueError(f"flow: {name!r} takes no {option}; those that do: {able}")
    known = options_of(recipe.build)
    if known is not None:
        refuse_others(options, known)
    sizes = FlowSizes(
        shape,
        check.size("flow", "context", context, least=0) + check.size("flow", "classes", classes, least=0),
        classes,
        check.size("flow", "depth", recipe.depth if depth is None else depth),
        check.size("flow", "hidden", hidden),
    )
    parts = [Standard(shape[0], len(shape)), *recipe.build(sizes, **options)]
    return Flow(parts, shape, context=context, classes=classes, base=base, memory=memory)
