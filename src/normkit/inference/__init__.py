"""Scores and statistics at test time: nothing is trained, but for what adapts to a stream or steers."""

from normkit.inference.generation import RejectionSampling
from normkit.inference.retrieval import retrieve
from normkit.inference.steering import steered, steering_loss

__all__ = ["RejectionSampling", "retrieve", "steered", "steering_loss"]
