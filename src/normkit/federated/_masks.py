"""What FedSelect's parts share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

PAPER = (
    "FedSelect: Personalized Federated Learning with Customized Selection of Parameters for Fine-Tuning (Tamirisa et "
    "al., 2024), arXiv 2404.02478"
)


def masks(owner: str, names: Sequence[str], values: Sequence[Tensor]) -> list[Tensor]:
    """Return masks as booleans, True for what is personal; anything but 0 and 1 is refused."""
    for name, value in zip(names, values, strict=True):
        if not ((value == 0) | (value == 1)).all():
            raise ValueError(f"{owner}: states mask:{name} must be 0 for shared and 1 for personal everywhere")
    return [value != 0 for value in values]
