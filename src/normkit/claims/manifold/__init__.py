"""Claims of the room ``manifold``, a file a method."""
