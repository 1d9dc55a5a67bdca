"""FedBN and its kin: what of a model's state stays with a client, and how the rest is averaged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.ops.sums import in_type
from normkit.surgery.statistics.batch_statistics import batch_norms

State = Mapping[str, Tensor]


def local_entries(model: nn.Module, keep: str = "all") -> list[str]:
    """Return the names of the state entries that stay with a client under FedBN: those of batch-statistics layers.

    They are found by the layers' class, so that a shortcut's norm counts whatever it is called. They are never sent and
    never overwritten, and persist between rounds, also through rounds that the client sits out; an optimizer's
    moments of them stay local too. With ``keep="statistics"``, SiloBN, only the buffers stay local, and gain and shift
    are averaged.

    FedBN: Federated Learning on Non-IID Features via Local Batch Normalization (Li et al., 2021), arXiv 2102.07623.
    Written from the paper; the authors' script matches names instead.

    >>> local_entries(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)))
    ['1.running_mean', '1.running_var', '1.num_batches_tracked']
    """
    check.choice("local_entries", "keep", keep, ("all", "statistics"))
    own: set[str] = set()
    for name, layer in batch_norms(model).items():
        state = layer.state_dict() if keep == "all" else dict(layer.named_buffers(remove_duplicate=False))
        own |= {f"{name}.{entry}" if name else entry for entry in state}
    return [entry for entry in model.state_dict() if entry in own]


def average(
    states: Sequence[State], samples: Sequence[float] | None = None, local: Collection[str] = ()
) -> dict[str, Tensor]:
    """Average the clients' states, but for the entries of ``local``: sum_k (n_k / n) value_k.

    ``samples`` are the clients' sample counts n_k; all count alike without. The sums are taken in float64 and come
    back in each entry's type, integers rounded. A client loads the result with ``load_state_dict(..., strict=False)``.
    """
    shares = _shares("average", states, samples)
    return {name: _mean([s[name] for s in states], shares) for name in states[0] if name not in local}


def pool(states: Sequence[State], samples: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Average the clients' states, and join their running moments exactly: a start for clients not seen before.

    An average of variances misses the variance between the clients' means. Wherever ``running_mean`` and
    ``running_var`` of one layer are among the entries they are merged with :func:`normkit.statistics.merge`; the rest
    is averaged.
    """
    shares = _shares("pool", states, samples)
    pooled = average(states, samples)
    for name in pooled:
        stem = name.removesuffix("running_mean")
        if stem != name and f"{stem}running_var" in pooled:
            mean, var = (torch.stack([s[f"{stem}running_{of}"].double() for s in states]) for of in ("mean", "var"))
            mean, var = statistics.merge(mean, var, shares.to(mean))
            pooled[name], pooled[f"{stem}running_var"] = mean.to(pooled[name]), var.to(pooled[name])
    return pooled


def _shares(owner: str, states: Sequence[State], samples: Sequence[float] | None) -> Tensor:
    """Return the clients' shares of all samples, in float64."""
    if not states:
        raise ValueError(f"{owner}: states must hold at least one client's")
    number = torch.tensor([1.0] * len(states) if samples is None else samples, device="cpu").double()
    if number.shape != (len(states),) or (number < 0).any() or not number.sum() > 0:
        raise ValueError(
            f"{owner}: samples must give each of the {len(states)} states a count, not all of them 0; it is {samples!r}"
        )
    different = [
        name for name in states[0] if any(name not in s or s[name].shape != states[0][name].shape for s in states)
    ]
    if different:
        raise ValueError(f"{owner}: the states differ in {', '.join(different)}")
    return number / number.sum()


def _mean(values: list[Tensor], shares: Tensor) -> Tensor:
    stacked = torch.stack(values).to(torch.promote_types(values[0].dtype, torch.float64))
    return in_type(torch.tensordot(shares.to(stacked), stacked, 1), values[0])
