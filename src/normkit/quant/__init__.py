"""Low precision: transforms before rounding, rounding that is learned, and the losses that are lowered by it."""
