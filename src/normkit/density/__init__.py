"""Distributions: invertible maps whose log-determinant is known, what is built of them, and samplers."""
