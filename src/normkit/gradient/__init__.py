"""Gradients and steps: what is done to a gradient before it moves a weight, and optimizers made of that."""

from normkit.gradient._optimizer import Optimizer
from normkit.gradient.groups import param_groups

__all__ = ["Optimizer", "param_groups"]
