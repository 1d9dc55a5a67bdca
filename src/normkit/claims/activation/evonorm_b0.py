"""What is claimed of EvoNorm-B0 beside batch norm."""

from normkit.claims.images import BATCHNORM, Run, not_worse

CLAIMS = [
    not_worse(
        "not-behind-batchnorm",
        "It is not behind batch norm and ReLU by more than half a point.",
        "images",
        Run("evonorm-b0", "none"),
        BATCHNORM,
        0.5,
        draws=16,
    ),
]
