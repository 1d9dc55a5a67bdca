"""Claims of the room ``activation``, a file a method."""
