"""What is claimed of pairs by optimal transport."""

from normkit.claims.plane import less

CLAIMS = [
    less(
        "energy",
        "The paths' energy is 0.9 of that of pairs that are drawn alone, or less.",
        of="energy32",
        by=0.9,
        number="share of the energy",
    ),
    less(
        "one-step",
        "In one step its samples are at 0.7 of the distance from data, or less.",
        of="error1",
        by=0.7,
        number="share of the distance",
    ),
]
