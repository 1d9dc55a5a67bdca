"""A velocity field, followed for a fixed time.

The part is ``cnf``. Options: ``steps``, ``method``.
"""

from normkit.density._recipe import Recipe, field

FLOW = Recipe(field("cnf"), depth=1, small={"steps": 40})
