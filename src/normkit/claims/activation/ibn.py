"""What is claimed of IBN under contrasts that were not seen."""

from functools import partial

from normkit.claims.contrast import PLAIN, Run, as_good, drop
from normkit.claims.kinds import Trained, above

CLAIMS = [
    Trained(
        "drop",
        says="Under unseen contrasts it loses 3 points fewer than batch norm, or more.",
        measure=partial(drop, run=Run("ibn")),
        wanted=above(3.0),
        control=partial(drop, run=PLAIN._replace(permute=True)),
        against="batch norm from another start",
        number="points",
        reach="full",
        bed="contrast",
    ),
    as_good(
        "seen",
        "Under the contrasts of training it is within a point of batch norm.",
        run=Run("ibn", test="seen"),
        over=PLAIN._replace(test="seen"),
        by=1.0,
        reach="full",
    ),
]
