"""Samplers of any log density, a file each: ``SAMPLER`` holds one step of many chains, and what it needs."""
