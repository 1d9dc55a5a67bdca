"""What is read of a model on a sampled step, each ``SIGNAL`` a file."""
