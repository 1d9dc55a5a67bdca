"""Points of manifolds: positive definite matrices, subspaces, hyperbolic vectors, compositions, rotations.

Beside the methods there is the ground that they stand on, whose derivatives are right where eigenvalues are equal:

>>> import torch, normkit as nk
>>> x = torch.diag_embed(torch.tensor([[1.0, 4.0], [1.0, 1.0]]))
>>> nk.manifold.sqrt(x).diagonal(0, 1, 2)
tensor([[1., 2.],
        [1., 1.]])
>>> nk.manifold.mean(x).diagonal().round(decimals=4)
tensor([1., 2.])
"""

from normkit.manifold._functions import exp as exp
from normkit.manifold._functions import log as log
from normkit.manifold._functions import power as power
from normkit.manifold._functions import rsqrt as rsqrt
from normkit.manifold._functions import spectral as spectral
from normkit.manifold._functions import sqrt as sqrt
from normkit.manifold._geoopt import to_geoopt as to_geoopt
from normkit.manifold._mean import mean as mean
from normkit.manifold._points import require_definite as require_definite

__all__ = ["exp", "log", "mean", "power", "require_definite", "rsqrt", "spectral", "sqrt", "to_geoopt"]
