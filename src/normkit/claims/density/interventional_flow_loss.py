"""What is claimed of a density that is right where either of two models is."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.laws import mended

WRONG = partial(mended, density_right=False, chance_right=False)
CLAIMS = [
    Trained(
        f"wrong-{wrong}",
        says=f"Where the first model's {wrong} is wrong, 0.3 of the uncorrected divergence is left, or less.",
        measure=partial(mended, density_right=wrong != "density", chance_right=wrong != "chance"),
        wanted=below(0.3),
        control=WRONG,
        against="both wrong",
        number="share of the divergence",
        null=1.0,
        reach="full",
        bed="laws",
    )
    for wrong in ("density", "chance")
]
