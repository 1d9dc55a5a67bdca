"""Claims of the room ``residual``, a file a method."""
