"""One vector: the statistic of a token stays inside it, or there is none."""
