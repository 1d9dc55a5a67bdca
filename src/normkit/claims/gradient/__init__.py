"""Claims of the room ``gradient``, a file a method."""
