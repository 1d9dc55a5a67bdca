"""Attention cores: what happens between queries, keys and values, called as ``core(q, k, v, mask=None)``."""
