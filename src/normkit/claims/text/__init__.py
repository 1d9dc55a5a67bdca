"""Claims of the room ``text``, a file a method."""
