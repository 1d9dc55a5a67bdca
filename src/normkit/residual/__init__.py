"""The residual stream: placements of norms and scales around sublayers, and a reference transformer made of them."""
