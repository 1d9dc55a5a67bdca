"""Claims of the room ``density``, a file a method."""
