"""Bend each number by a spline, whose parameters those before it give.

Neural spline flows, arXiv 1906.04032; networks are ours. Options: ``bins``, ``bound`` (beyond it a spline is the
identity), ``activation`` as of ``affine-coupling``. For ``depth`` and ``hidden`` see ``affine-autoregressive``.
"""

from normkit.density._curved import curved, spline
from normkit.density._parts import Autoregressive
from normkit.density._recipe import Recipe

FLOW = Recipe(curved(Autoregressive, spline), depth=4, context=True, labels=True)
