"""Across samples: the statistic of a channel is taken over the batch."""
