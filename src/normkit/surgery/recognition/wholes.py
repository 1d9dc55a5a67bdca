"""What a module with matrices computes as a whole: a router, a connection of streams, an adaptive norm, attention.

A module is copied only if its sizes are those of such a whole.
"""

from __future__ import annotations

import inspect

from torch import nn

from normkit.surgery.recognition import adaptive, altup, gates, maps, residuals, routers, specimen
from normkit.surgery.recognition.agreement import is_matrix, redraw
from normkit.surgery.recognition.match import Match
from normkit.threads import processor_by_default, threads

OWN = "normkit."
PARTS, ROWS = 3, 1024  # of what may route: modules, and rows of its matrix


def may_be_whole(module: nn.Module) -> bool:
    """Whether it is worth a look: a forward that is not torch's, and the sizes of one of them."""
    home = getattr(inspect.getattr_static(type(module), "forward", None), "__module__", None) or ""
    if home.startswith(("torch.nn.", OWN)):
        return False
    return any(may_be(module) for may_be, _ in WAYS) and not specimen.refusal(module)


def _may_route(module: nn.Module) -> bool:
    """Whether it has few parts, one matrix of few rows, and short vectors."""
    if specimen.has_more_parts(module, PARTS):
        return False
    tensors = specimen.tensors(module).values()
    matrices = [t for t in tensors if is_matrix(t)]
    if len(matrices) != 1 or matrices[0].is_meta or len(matrices[0]) > ROWS:
        return False
    return all(t.numel() <= max(t.shape, default=1) for t in tensors if not is_matrix(t))


def examine_whole(module: nn.Module) -> Match | None:
    """Return what a module is as a whole, or None where it is none of these."""
    if not may_be_whole(module):
        return None
    with specimen.quiet(), specimen.ungrouped(), threads(1), processor_by_default():
        try:
            here = specimen.on_processor(module)
            work = redraw(here)
            matches = (find(here, work) for may_be, find in WAYS if may_be(module))
            match = next((match for match in matches if match is not None), None)
        except Exception:  # it cannot be copied, or its own properties raise
            return None
    if match is not None and here is not module:
        match.module.to(next(module.parameters()).device)
    return match


def _routes(module: nn.Module, work: nn.Module) -> Match | None:
    tensors = specimen.tensors(module)
    ((name, matrix),) = ((name, t) for name, t in tensors.items() if is_matrix(t))
    vectors = {n: t for n, t in tensors.items() if n != name and t.dim()}
    for look in (residuals.find, routers.find):
        match = look(module, work, name, tuple(matrix.shape), vectors)
        if match is not None:
            return match
    return None


WAYS = (
    *((one.may_be, one.find) for one in (gates, adaptive, maps, altup)),
    (_may_route, _routes),
)


def has_norms_within(match: Match) -> bool:
    """Whether what was found may have norms of its own, which are sites too."""
    return match.name not in ("router", "mhc", "mhc-head")
