"""Claims of the room ``loss``, a file a method."""
