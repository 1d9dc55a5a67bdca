"""Changes to whole models: folding, merging, freezing, re-estimating. Import what is needed from its files."""
