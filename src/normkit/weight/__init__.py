"""Weights."""
