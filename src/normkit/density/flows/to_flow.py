"""A velocity field, followed for a time that is learned.

The part is ``to-flow``. Options: ``steps``, ``method``.
"""

from normkit.density._recipe import Recipe, field

FLOW = Recipe(field("to-flow"), depth=1, small={"steps": 40})
