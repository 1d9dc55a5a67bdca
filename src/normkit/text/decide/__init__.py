"""Scores to one answer, or to none."""
