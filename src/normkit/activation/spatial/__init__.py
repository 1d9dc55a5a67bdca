"""Within one image: statistics over space, groups of channels, or both."""
