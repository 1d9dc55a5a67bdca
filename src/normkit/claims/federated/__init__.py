"""Claims of the room ``federated``, a file a method."""
