"""Points of manifolds: positive definite matrices, subspaces, hyperbolic vectors, compositions, rotations."""
