"""Layers that get no gradient by ``requires_grad`` while most others are trained."""

from __future__ import annotations

import math
from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History

SHARE = 0.5
"""Of the matrices: whoever tunes a part of a trained model freezes most of it. A layer whose entries are spread evenly
in a range is as torch drew it, and is named whatever its share. Of the two matrices of an adapter one counts, which
does not begin at zero: where all layers have adapters, most matrices are frozen."""


def find(history: History) -> Iterator[Finding]:
    """Look at the matrices of layers."""
    frozen = history.facts.get("frozen", [])
    shapes = history.facts["shapes"]
    trained = [name for name, shape in shapes.items() if len(shape) > 1 and not history.began_near_zero(name)]
    at_random = [name for name, even in frozen if even]
    few = len(frozen) < SHARE * (len(frozen) + len(trained))
    names = [name for name, _ in frozen] if few else at_random
    if names:
        layer = names[0].rpartition(".")[0]
        fresh = f"; {len(at_random)} are as torch draws them, so that nothing has trained them" if at_random else ""
        yield Finding(
            "layers are frozen",
            3.4,
            tuple(names),
            f"{len(frozen)} of {len(frozen) + len(trained)} matrices have requires_grad=False: "
            f"{', '.join(name for name in names[:4])}{fresh}.",
            leads="layers that stay as they are",
            margin=math.inf if at_random else 1.0,  # to tune most of a trained model is usual
            otherwise="layers that require a gradient, or most of a trained model frozen",
            remedies=(
                Remedy(
                    "train them",
                    f'model.get_submodule("{layer}").requires_grad_(True)  # and let the optimizer hold its parameters',
                ),
            ),
        )
