"""Federated learning: how states are put together, what a client minimizes, and what it keeps; no loop, no network."""

from normkit.federated._states import stack

__all__ = ["stack"]
