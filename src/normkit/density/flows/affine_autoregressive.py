"""Shift and scale each number by those before it.

Masked autoregressive flows, arXiv 1705.07057; networks are ours. Option: ``activation`` as of ``affine-coupling``.
A hidden unit lies between two neighbours, so that ``depth`` times ``hidden`` is best no less than the vector's length.
"""

from normkit.density._curved import affine, curved
from normkit.density._parts import Autoregressive
from normkit.density._recipe import Recipe

FLOW = Recipe(curved(Autoregressive, affine), depth=4, context=True, labels=True)
