"""Scores and statistics at test time: nothing is trained."""
