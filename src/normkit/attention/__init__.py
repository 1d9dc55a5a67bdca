"""Attention cores: what happens between queries, keys and values, called as ``core(q, k, v, mask=None)``."""

from normkit.attention.core import AttentionCore, Recurrent
from normkit.attention.unselectable_keys import projection_fraction

__all__ = ["AttentionCore", "Recurrent", "projection_fraction"]
