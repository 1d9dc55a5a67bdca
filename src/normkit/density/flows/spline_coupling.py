"""Couplings that bend half of the numbers by splines, whose parameters the other half gives.

Neural spline flows, arXiv 1906.04032; networks are ours. Options: ``bins``, ``bound`` (beyond it a spline is the
identity), ``activation`` as of ``affine-coupling``.
"""

from normkit.density._curved import curved, spline
from normkit.density._parts import Coupling
from normkit.density._recipe import Recipe

FLOW = Recipe(curved(Coupling, spline, 2), depth=6, context=True, labels=True)
