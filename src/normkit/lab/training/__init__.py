"""Runs: what to train next, where, and how."""
