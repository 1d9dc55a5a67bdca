"""``normkit fit``: from a table or images to trained densities, with held-out bits, samples and a report."""
