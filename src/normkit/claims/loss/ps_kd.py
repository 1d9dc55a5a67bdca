"""What is claimed of labels that are mixed with a model's own predictions."""

from normkit.claims.students import better

CLAIMS = [
    better("over-smoothing", "It is half a point better than label smoothing, or more.", "ps-kd", "smooth", 0.5),
]
