"""What models of text are trained with: losses, sets of examples, noise."""
