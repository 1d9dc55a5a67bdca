"""What is claimed of soft labels without a teacher."""

from normkit.claims.students import better

CLAIMS = [
    better("over-labels", "It is half a point better than labels alone, or more.", "uskd", "labels", 0.5),
]
