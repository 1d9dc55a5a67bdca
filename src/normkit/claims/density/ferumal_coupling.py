"""What is claimed of couplings by kernels where data are few."""

from normkit.claims.plane import Run, better

CLAIMS = [
    better(
        "few-data",
        "From 200 samples, with a twentieth of the weights, it is better than affine couplings of a network.",
        run=Run("kernel", samples=200, layers=4),
        over=Run(samples=200, layers=4),
        by=0.02,
        reach="proxy",
    ),
]
