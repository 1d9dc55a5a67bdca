"""Claims of the room ``weight``, a file a method."""
