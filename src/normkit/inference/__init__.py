"""Scores and statistics at test time: nothing is trained, but for what adapts to a stream or steers."""

from normkit.inference.generation import RejectionSampling
from normkit.inference.steering import steered, steering_loss

__all__ = ["RejectionSampling", "steered", "steering_loss"]
