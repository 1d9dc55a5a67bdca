"""Pure functions."""
