"""Claims of the room ``quant``, a file a method."""
