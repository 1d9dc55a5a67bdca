"""What is claimed of splines in couplings of two layers."""

from normkit.claims.plane import Run, better

CLAIMS = [
    better(
        "checkerboard",
        "On a checkerboard it brings 0.1 nats over affine couplings of as many weights, or more.",
        run=Run("spline"),
        over=Run(),
        by=0.1,
    ),
    better(
        "rings",
        "On rings it brings 0.1 nats over affine couplings of as many weights, or more.",
        run=Run("spline", "rings"),
        over=Run(data="rings"),
        by=0.1,
    ),
]
