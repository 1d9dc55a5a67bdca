"""Tables brought in order, or made into texts that the other parts take."""
