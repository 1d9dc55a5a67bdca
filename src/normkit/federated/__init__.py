"""Federated learning: how states are put together, what a client minimizes, and what it keeps; Flower runs it."""

from normkit.federated._states import stack
from normkit.federated.flower import disparity, keep_local, simulate, strategy

__all__ = ["disparity", "keep_local", "simulate", "stack", "strategy"]
