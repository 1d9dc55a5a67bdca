"""Gradients and steps: what is done to a gradient before it moves a weight, and optimizers made of that."""
