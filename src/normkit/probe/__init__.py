"""Probes: what can be measured on a live model, its curvature, the loss around it, and what it can still learn."""
