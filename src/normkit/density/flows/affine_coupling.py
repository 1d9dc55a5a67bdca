"""Couplings that shift and scale half of the numbers by the other half.

Real NVP, arXiv 1605.08803; networks and curves are ours. Option: ``activation`` of the networks, one of ``"silu"``,
``"gelu"``, ``"elu"``, ``"tanh"`` and ``"relu"``, whose densities have edges.
"""

from normkit.density._curved import affine, curved
from normkit.density._parts import Coupling
from normkit.density._recipe import Recipe

FLOW = Recipe(curved(Coupling, affine, 2), depth=6, context=True, labels=True)
