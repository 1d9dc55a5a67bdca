"""The residual stream: placements of norms and scales around sublayers, and norms that belong to it."""

from normkit.residual._stream import Block, Placement
from normkit.residual.deepnorm import deepnorm_constants

__all__ = ["Block", "Placement", "deepnorm_constants"]
