"""Other layers that give the same numbers: folded, converted, fused. Each is compared before a model is changed."""
