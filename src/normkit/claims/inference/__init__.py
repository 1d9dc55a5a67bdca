"""Claims of the room ``inference``, a file a method."""
