"""Activations, by what a statistic is taken over."""
