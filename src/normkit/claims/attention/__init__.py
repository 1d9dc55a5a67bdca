"""Claims of the room ``attention``, a file a method."""
