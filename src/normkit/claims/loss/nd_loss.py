"""What is claimed of features that are turned and lengthened in distillation."""

from normkit.claims.students import better

CLAIMS = [
    better("over-kd", "Beside plain distillation it brings half a point, or more.", "nd", "kd", 0.5),
]
