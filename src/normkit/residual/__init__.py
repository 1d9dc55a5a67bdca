"""The residual stream: placements of norms and scales around sublayers, and norms that belong to it."""

from normkit.residual.deepnorm import deepnorm_constants
from normkit.residual.stream import Block, Placement, WholeLayer
from normkit.residual.wiring import Branch, Connection, Form, Wiring

__all__ = [
    "Block",
    "Branch",
    "Connection",
    "Form",
    "Placement",
    "WholeLayer",
    "Wiring",
    "deepnorm_constants",
]
