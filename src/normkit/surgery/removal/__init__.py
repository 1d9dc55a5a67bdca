"""Layer norms taken out of a model while it is trained on."""
