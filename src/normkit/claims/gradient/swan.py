"""What is claimed of SWAN beside Adam."""

from normkit.claims.steps import ADAMW, Run, not_worse

CLAIMS = [
    not_worse("as-adam", "Its loss is not above Adam's by more than 1 %.", run=Run("swan"), over=ADAMW, than=1.0),
]
