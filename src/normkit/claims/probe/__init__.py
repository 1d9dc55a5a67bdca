"""Claims of the room ``probe``, a file a method."""
