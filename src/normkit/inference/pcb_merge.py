"""PCB-merging: fine-tuned models merged, each parameter weighted by its size and by its agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import beside
from normkit.statistics import accurate

CLIPPED = {"paper": 1e-4, "vision": 0.01}
NAME = "pcb-merge"


class Merged(NamedTuple):
    """The merged task vector, and how much each parameter of each task counted."""

    merged: Tensor
    importance: Tensor


@method(
    NAME,
    paper="Parameter Competition Balancing for Model Merging (Du et al., 2024), arXiv 2410.02396",
    shape="S F",
    over="S F",
    exempt={"gradcheck": "a merged model carries no gradient"},
)
@torch.no_grad()
def pcb_merge(
    task_vectors: Tensor, *, ratio: float = 0.1, scale: float | Sequence[float] = 1.0, variant: str = "paper"
) -> Merged:
    """Average what fine-tuning changed, each parameter weighted by its own size and by what the other tasks want.

    For one model out of several that were fine-tuned from one base, each on a task, without training. The authors
    search ``scale`` for each task on validation data; where there is none, 1.2 is theirs. Models of different origin do
    not fit.

    Let there be n tasks with vectors t (fine-tuned less base), and let a be |t| clipped to its quantiles q and 1 - q.
    With s = sign(t) a, and unit(x) a row moved to [0, 1],

        b = exp(n unit(a)²) tanh(t sum_j u_j),    u = t, or sign(t) unit(a) in "vision"
        importance = unit(b clipped from below, so that the top ``ratio`` of a row is above 0)
        merged = sum_i scale_i importance_i s_i / max(sum_i importance_i, 1e-12)

    A row that is all the same has importance 0; where no task cares nothing changes. As the authors' code, which is
    without the softmax of the paper.

    Args:
        task_vectors: a row a task, (n, d).
        ratio: how much of each task is kept.
        scale: of all, or one number a task; 1.2 without a search.
        variant: ``"paper"`` (q = 1e-4) or ``"vision"`` (q = 0.01).

    Returns ``merged`` (d,) and ``importance`` (n, d). Beside it: ``merge(base, tuned)`` on state dicts. Running
    statistics of batch norm are to be estimated again.

    Parameter Competition Balancing (Du et al., 2024), arXiv 2410.02396.
    """
    t = scores(NAME, "task_vectors", task_vectors, (None, None))
    ratio = check.number(NAME, "ratio", ratio, 0.0, 1.0)
    q = CLIPPED[check.choice(NAME, "variant", variant, tuple(CLIPPED))]
    factors = _factors(scale, t)
    if not t.numel():
        raise ValueError(f"{NAME}: task_vectors must not be empty, but their shape is {tuple(t.shape)}")
    size = _clip(t.abs(), q, q)
    signed, relative = t.sign() * size, _unit(size)
    others = (t if variant == "paper" else t.sign() * relative).sum(0)
    less = max(len(t) / 2, len(t) - 80)  # what divides a row changes no importance; exp(89) is infinite
    balanced = (len(t) * relative.square() - less).exp() * (t * others).tanh()
    importance = _unit(_clip(balanced, 1 - ratio, 0.0))
    merged = (factors * importance * signed).sum(0) / importance.sum(0).clamp(min=1e-12)
    return Merged(merged.to(task_vectors.dtype), importance.to(task_vectors.dtype))


@beside(pcb_merge)
@torch.no_grad()
def merge(
    base: Mapping[str, Tensor],
    tuned: Sequence[Mapping[str, Tensor]],
    *,
    ratio: float = 0.1,
    scale: float | Sequence[float] = 1.0,
    variant: str = "paper",
    skip: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Return a state dict: the base, moved by what the tuned ones changed; ``skip`` names what stays the base's."""
    for state in tuned:
        if state.keys() != base.keys() or any(state[key].shape != base[key].shape for key in base):
            raise ValueError(f"{NAME}: tuned must have the names and shapes of base")
    names = [key for key in sorted(base) if base[key].is_floating_point() and key not in skip]
    if not names or not tuned:
        raise ValueError(f"{NAME}: base must have a floating-point tensor, and tuned a state")
    flat = _flat(base, names)
    vectors = torch.stack([_flat(state, names) - flat for state in tuned])
    moved = flat + pcb_merge(vectors, ratio=ratio, scale=scale, variant=variant).merged
    parts = moved.split([base[key].numel() for key in names])
    new = {key: part.view_as(base[key]).to(base[key].dtype) for key, part in zip(names, parts, strict=True)}
    return {key: new.get(key, value.clone()) for key, value in base.items()}


def _flat(state: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    return torch.cat([accurate(state[name]).flatten() for name in names])


def _factors(scale: float | Sequence[float], t: Tensor) -> Tensor:
    """A number a task, (n, 1)."""
    given = [scale] * len(t) if isinstance(scale, int | float) else list(scale)
    if len(given) != len(t):
        raise ValueError(f"{NAME}: scale must be a number or one for each of {len(t)} tasks, not {len(given)}")
    return t.new_tensor([check.number(NAME, "scale", value) for value in given]).unsqueeze(1)


def _clip(x: Tensor, low: float, high: float) -> Tensor:
    """Clamp each row to its values at the share ``low`` from below and ``high`` from above."""
    d = x.shape[1]
    at = [min(max(place, 0), d - 1) for place in (int(d * low), int(d * (1 - high) - 1))]
    least, most = (x.kthvalue(place + 1, dim=1, keepdim=True).values for place in at)
    return torch.minimum(torch.maximum(x, least), most)


def _unit(x: Tensor) -> Tensor:
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    return torch.where(high > low, (x - low) / torch.where(high > low, high - low, 1), 0)
