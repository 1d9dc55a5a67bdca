"""Choose among pruned models by their loss after their batch statistics were estimated anew across devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.surgery import proof
from normkit.surgery.statistics.batch_statistics import estimate
from normkit.surgery.statistics.federated import pool


class Selection(NamedTuple):
    """The index of the candidate with the smallest loss, and the losses of all."""

    best: int
    losses: list[float]


@torch.no_grad()
def select(
    candidates: Sequence[nn.Module],
    devices: Sequence[Sequence[Any]],
    loss: Callable[[nn.Module, Any], Tensor],
) -> Selection:
    """Find the candidate that does best with statistics of its own, the adaptive batchnorm selection of FedTiny.

    The statistics of the dense model make the losses of pruned ones meaningless. So for each candidate, with its
    weights kept: each device k estimates the batch statistics from its n_k samples; the server joins them, exactly;
    each device evaluates the loss with the joined statistics on the same samples; and the loss is sum_k n_k L_k /
    sum_k n_k. Each candidate is left in eval, with the joined statistics. Those of a layer are joined over the devices
    whose samples reach it; one that none reaches keeps its own.

    Args:
        candidates: pruned versions of one model.
        devices: for each device its batches, which are gone over twice: tensors, or tuples or dictionaries of them.
        loss: ``loss(model, batch)``, the mean loss over a batch; NaN counts as infinite.

    Distributed Pruning Towards Tiny Neural Networks in Federated Learning (Huang et al., 2022), arXiv 2212.01977.
    Written from the paper's description, without the authors' code: statistics start afresh and average the batches,
    and are joined with the variance between the devices' means, both choices of this project.
    """
    if not candidates or not devices or not all(devices):
        raise ValueError(f"select: wanted candidates, and batches on every device; got {len(candidates)} candidates")
    losses = [_adapted_loss(candidate, devices, loss) for candidate in candidates]
    ranked = [value if math.isfinite(value) else math.inf for value in losses]
    if min(ranked) == math.inf:
        raise ValueError(f"select: loss must be finite for at least one candidate; it is {losses}")
    return Selection(ranked.index(min(ranked)), losses)


def _adapted_loss(model: nn.Module, devices: Sequence[Sequence[Any]], loss: Callable) -> float:
    proof.check_model("select", model)
    samples = [sum(_samples(batch) for batch in batches) for batches in devices]
    reached: dict[str, list[tuple[dict[str, Tensor], int]]] = {}
    for batches, number in zip(devices, samples, strict=True):
        for site in (change.site for change in estimate("select", model, batches) if change.became):
            own = model.get_submodule(site).named_buffers(prefix=site, remove_duplicate=False)
            reached.setdefault(site, []).append(({name: value.clone() for name, value in own}, number))
    joined = [pool(*zip(*of_devices, strict=True)) for of_devices in reached.values()]
    model.load_state_dict({name: value for layer in joined for name, value in layer.items()}, strict=False)
    total = sum(_samples(batch) * float(loss(model, batch)) for batches in devices for batch in batches)
    return total / sum(samples)


def _samples(batch: Any) -> int:
    if isinstance(batch, Tensor):
        return len(batch)
    return _samples(next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0])
