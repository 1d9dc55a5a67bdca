"""Gain and shift come from elsewhere: a style, a map, a task."""
