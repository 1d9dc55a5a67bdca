"""Average each number of the clients without its least and its largest.

The part is ``trimmed-average``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import catalog
from normkit.federated.rounds import State, Strategy, Update


def trimmed(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """Average all that is sent, without the extremes."""
    stacked = [torch.stack([update.state[name] for update in updates]) for name in sent]
    combine = catalog.create("trimmed-average", entries=tuple(sent))
    return dict(zip(sent, combine(*stacked), strict=True))


PLAN = Strategy(trimmed, ("trimmed-average",))
