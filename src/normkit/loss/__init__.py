"""Losses and rewards: what a loss is averaged over, and what a reward is measured against."""
