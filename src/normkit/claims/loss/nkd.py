"""What is claimed of distillation whose other classes are normalized."""

from normkit.claims.students import better

CLAIMS = [
    better("over-kd", "It is half a point better than plain distillation, or more.", "nkd", "kd", 0.5),
]
