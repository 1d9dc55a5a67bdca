"""Claims of the room ``transformer``, a file a method."""
