"""Principal gradients: an update of a server along the directions that its clients share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import by_numbers, finite
from normkit.ops.spectral import by_lapack
from normkit.statistics import accurate, full_precision

NOISE = 1e-12  # eigenvalues below this share of the largest are rounding


@method(
    "principal-gradient",
    paper="Tackling Data Heterogeneity in Federated Learning via Loss Decomposition (Zeng et al., 2024), "
    "arXiv 2408.12300",
    shape="K C",
    over="K",
    example={"entries": ("weight",)},
)
def principal_gradient(*updates: Tensor, entries: Sequence[str], share: float = 0.8) -> tuple[Tensor, ...]:
    """Keep of each client's update the directions that most clients share, then take the mean.

    For federated learning over unlike data: what one client alone wants is left out. Let g_i be the update of client i
    in a row. Entry by entry, with s_j the eigenvalues of the K clients' products <g_i, g_k> / K, falling, and w_j the
    directions that belong to them,

        g_i <- |g_i| sum_j (s_j / sum of all s) sign(<g_i, w_j>) w_j    over the first max(1, floor(K share)) directions

    An entry of one number gets the plain mean. Eigenvalues at or below 1e-12 of the largest are left out.

    Args:
        updates: for each entry the clients' states less the server's, stacked, (K, ...).
        entries: their names, in order.
        share: of the K directions.

    Tackling Data Heterogeneity in Federated Learning via Loss Decomposition (Zeng et al., 2024), arXiv 2408.12300.

    Differs from the paper in: one direction is kept where floor(K share) is 0, as in a round of one client.
    """
    share = check.number("principal-gradient", "share", share, 0.0, 1.0)
    if len(updates) != len(check.names("principal-gradient", "entries", entries)):
        raise ValueError(
            f"principal-gradient: there are {len(updates)} updates for the {len(entries)} entries {entries}"
        )
    for name, update in zip(entries, updates, strict=True):
        check.floating("principal-gradient", update, f"updates {name}")
        if update.dim() < 1 or len(update) != len(updates[0]):
            raise ValueError(
                f"principal-gradient: updates {name} has shape {tuple(update.shape)}; (clients, ...) is wanted"
            )
        finite("principal-gradient", f"updates {name}", update)
    return tuple(_join(by_numbers(accurate(update)), share).to(update.dtype) for update in updates)


def _join(update: Tensor, share: float) -> Tensor:
    g = update.flatten(1) if update.dim() > 1 else update[:, None]
    if g.shape[1] == 1:
        return update.mean(0)
    with full_precision(g):
        return _revised(g, share).mean(0).view(update.shape[1:])


def _revised(g: Tensor, share: float) -> Tensor:
    clients = len(g)
    sizes, vectors = (x.flip(-1) for x in by_lapack(torch.linalg.eigh, g @ g.mT / clients))
    kept = (torch.arange(clients, device=g.device) < max(1, math.floor(clients * share))) & (sizes > NOISE * sizes[0])
    ways = vectors.mT @ g
    ways = ways / torch.where(kept, ways.norm(dim=1), 1)[:, None]
    sizes = sizes.clamp(min=0)
    weights = torch.where(kept, sizes / torch.where(sizes.sum() > 0, sizes.sum(), 1), 0)
    return g.norm(dim=1, keepdim=True) * ((g @ ways.mT).sign() * weights) @ ways
