"""Other norms in the place of those of a model, and which can stand there."""
