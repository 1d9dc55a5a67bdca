"""Servers that remember: what PGFed, FedLD, GGEUR, FedLoG and FedTiny keep from round to round and tell each client.

A memory is a dict; what it holds by client is keyed by that client's number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from normkit.federated import _states
from normkit.federated.batchnorm_candidates import batchnorm_candidates
from normkit.federated.fedlog_synthetic import fedlog_synthetic
from normkit.federated.pgfed_server import pgfed_server
from normkit.federated.pooled_covariance import pooled_covariance
from normkit.federated.principal_gradient import principal_gradient
from normkit.federated.rounds import Instructions, State, Update, alike, average

Memory = dict[str, Any]
MEAN, VAR = "running_mean", "running_var"


def principal(updates: Sequence[Update], sent: State, *, memory: Memory, share: float = 0.8) -> dict[str, Tensor]:
    """FedLD: of the clients' changes the directions that most share; of an entry that has never moved, their mean."""
    state = alike(updates, sent)
    moved = memory.get("moved", [])
    names = [name for name in moved if name in sent]
    changes = [torch.stack([u.state[name].double() - sent[name].double() for u in updates]) for name in names]
    for name, change in zip(names, principal_gradient(*changes, entries=names, share=share), strict=True):
        state[name] = (sent[name].double() + change).to(sent[name].dtype)
    real = [name for name, value in sent.items() if value.is_floating_point()]
    memory["moved"] = [
        name for name in real if name in moved or any((u.state[name] != sent[name]).any() for u in updates)
    ]
    return state


def personal(
    updates: Sequence[Update],
    sent: State,
    *,
    memory: Memory,
    parameters: Collection[str],
    mu: float = 0.1,
    momentum: float = 0.0,
) -> dict[str, Tensor]:
    """PGFed: the clients' average, and for each client the gradients of the others as it weighs them."""
    updates = sorted(updates, key=lambda update: update.client)
    names, clients = tuple(parameters), [update.client for update in updates]
    start = memory.get("start", 1 / len(updates))
    alpha = {**memory.get("alpha", {})}
    for update in updates:
        alpha |= {(update.client, j): a for j, a in zip(_last(update, memory), update.numbers["alpha"], strict=True)}
    table = torch.tensor([[alpha.get((i, j), start) for j in clients] for i in clients], dtype=torch.float64)
    states, gradients = (
        [torch.stack([of(update)[name] for update in updates]) for name in names]
        for of in (lambda update: update.state, lambda update: update.more["gradient"])
    )
    risk = torch.tensor([float(update.numbers["risk"]) for update in updates], dtype=torch.float64)
    count = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    entries = pgfed_server(*states, *gradients, risk, table, count, entries=names, mu=mu)
    mean, sums = (dict(zip(names, entries[len(names) * at :], strict=False)) for at in (1, 2))
    before = memory.get("auxiliary", {})
    own = {i: {name: value[k] for name, value in sums.items()} for k, i in enumerate(clients)}
    own |= {
        i: {name: torch.lerp(own[i][name], before[i][name], momentum) for name in names} for i in own if i in before
    }
    memory |= {
        "start": start,
        "alpha": alpha,
        "clients": clients,
        "auxiliary": {**before, **own},
        "mean_gradient": mean,
        "risks": entries[-1].tolist(),
    }
    return average(updates, sent)


def of_the_others(memory: Memory, client: Any, **_: Any) -> Instructions:
    """PGFed: what a client that has taken part is told of the last round."""
    if client not in memory.get("auxiliary", {}):
        return Instructions()
    own = [memory["alpha"].get((client, j), memory["start"]) for j in memory["clients"]]
    records = {"auxiliary": memory["auxiliary"][client], "mean_gradient": memory["mean_gradient"]}
    return Instructions(records, {"risks": memory["risks"], "alpha": own})


def whole_gradient(update: Update, memory: Memory, *, parameters: Collection[str], **_: Any) -> str | None:
    """PGFed: a gradient of all parameters, and a weight for each client of the last round."""
    missing = sorted(set(parameters) - set(update.more["gradient"]))
    alpha, expected = update.numbers["alpha"], len(_last(update, memory))
    if missing:
        return f"its gradient lacks {', '.join(missing)}"
    if not isinstance(alpha, list) or len(alpha) != expected or any(a < 0 for a in alpha):
        return f"its alpha is {alpha}, not {expected} numbers from 0"
    return None if isinstance(update.numbers["risk"], Real) else "its risk is not one number"


def _last(update: Update, memory: Memory) -> list[Any]:
    """The clients that this one weighs: those of the last round, once it has taken part itself."""
    return memory["clients"] if update.client in memory.get("auxiliary", {}) else []


def pool(updates: Sequence[Update], memory: Memory, **_: Any) -> None:
    """GGEUR: mean and covariance of all clients' features, class by class."""
    updates = sorted(updates, key=lambda update: update.client)
    mean, covariance, count = (
        torch.stack([update.more["statistics"][name] for update in updates]) for name in ("mean", "covariance", "count")
    )
    whole = {"mean": torch.zeros_like(mean[0]), "covariance": torch.zeros_like(covariance[0])}
    for c in (count.sum(0) > 0).nonzero().flatten().tolist():
        whole["mean"][c], whole["covariance"][c] = pooled_covariance(mean[:, c], covariance[:, c], count[:, c])
    memory["pooled"] = whole
    memory["means"] = {update.client: (mean[k], count[k]) for k, update in enumerate(updates)}
    memory["told"] = []


def shape_of_all(memory: Memory, client: Any, **_: Any) -> Instructions:
    """GGEUR: what a client is told until it has answered once."""
    if client in memory["told"]:
        return Instructions()
    others = [means for other, means in memory["means"].items() if other != client]
    like = next(iter(memory["means"].values()))
    stacked = {
        name: torch.stack([means[at] for means in others]) if others else like[at].new_zeros(0, *like[at].shape)
        for at, name in enumerate(("mean", "count"))
    }
    return Instructions({"pooled": memory["pooled"], "others": stacked})


def answer(updates: Sequence[Update], sent: State, *, memory: Memory) -> dict[str, Tensor]:
    """GGEUR: the average; who has answered is not told again."""
    state = average(updates, sent)
    memory["told"] = sorted({*memory["told"], *(update.client for update in updates)})
    return state


def of_own_classes(update: Update) -> Update:
    """GGEUR: what a client sends, with zeros as the moments of a class that it has no sample of."""
    stats = update.more.get("statistics", {})
    count = stats.get("count")
    if count is None or count.dim() != 1:
        return update
    fitting = {name: value for name, value in stats.items() if value.shape[:1] == count.shape}
    known = {name: _states.where_counted(value, count) for name, value in fitting.items()}
    return update._replace(more={**update.more, "statistics": {**stats, **known}})


def moments(update: Update, memory: Memory, **_: Any) -> str | None:
    """GGEUR: mean (C, D), covariance (C, D, D) and count (C,) of each class."""
    stats = update.more["statistics"]
    if set(stats) != {"mean", "covariance", "count"}:
        return f"its statistics are {', '.join(stats) or 'nothing'}, not mean, covariance and count"
    (*classes, size), count = stats["mean"].shape, stats["count"]
    if len(classes) != 1 or stats["covariance"].shape != (*classes, size, size) or count.shape != (*classes,):
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in stats.items())
        return f"its statistics are {shapes}, not mean (C, D), covariance (C, D, D) and count (C,)"
    return "its count is below 0" if (count < 0).any() else None


def with_prototypes(updates: Sequence[Update], sent: State, *, memory: Memory) -> dict[str, Tensor]:
    """FedLoG: the clients' mean, all alike; their prototypes are joined by class, their generators are handed on."""
    state = alike(updates, sent)
    ordered = sorted(updates, key=lambda update: update.client)
    features = torch.stack([update.more["prototypes"]["features"] for update in ordered])
    rate = torch.tensor([update.numbers["class-rate"] for update in ordered], dtype=torch.float64)
    memory["synthetic"] = {"features": fedlog_synthetic(features, rate)}
    memory["generators"] = _states.stack([update.more["generator"] for update in ordered])
    return state


def synthetic(memory: Memory, client: Any, **_: Any) -> Instructions:
    """FedLoG: from the second round on, synthetic nodes, and the clients' generators, stacked."""
    return Instructions({name: memory[name] for name in ("synthetic", "generators") if name in memory})


def prototypes(update: Update, memory: Memory, **_: Any) -> str | None:
    """FedLoG: features (C, S, D), and how frequent each class is."""
    entries, rate = update.more["prototypes"], update.numbers["class-rate"]
    if set(entries) != {"features"} or entries["features"].dim() != 3:
        return "its prototypes are not one entry, features (C, S, D)"
    classes = len(entries["features"])
    right = isinstance(rate, list) and len(rate) == classes
    return None if right else f"its class-rate is {rate}, not {classes} numbers"


def tell(memory: Memory, *, candidates: Sequence[State], **_: Any) -> Instructions:
    """FedTiny: the candidates, stacked entry by entry."""
    return Instructions({"candidates": _states.stack(candidates)})


def merge(updates: Sequence[Update], memory: Memory, *, candidates: Sequence[State], **_: Any) -> None:
    """FedTiny: the devices' batch statistics averaged, candidate by candidate."""
    memory["answers"] = {update.client: update for update in updates}
    averages = _candidates(updates, torch.zeros(len(updates), len(candidates)))
    memory["statistics"] = _split(averages, updates[0].more["statistics"])


def merged(memory: Memory, **_: Any) -> Instructions:
    """FedTiny: the candidates' statistics, as all devices together have them."""
    return Instructions({"statistics": memory["statistics"]})


def choose(updates: Sequence[Update], memory: Memory, **_: Any) -> None:
    """FedTiny: the candidate of the least loss on the devices that answered twice."""
    answers = memory.pop("answers")
    both = [update for update in updates if update.client in answers]
    if not both:
        raise ValueError("strategy: no client that sent statistics sent losses as well")
    loss = torch.tensor([update.numbers["losses"] for update in both], dtype=torch.float64)
    selection = _candidates([answers[update.client] for update in both], loss)
    memory |= {"best": int(selection.best), "loss": selection.loss.tolist()}


def pick_candidate(state: State, memory: Memory, *, candidates: Sequence[State], **_: Any) -> dict[str, Tensor]:
    """FedTiny: the candidate that is trained on, with the statistics of all devices."""
    best = memory["best"]
    return {**candidates[best], **{name: value[best] for name, value in memory["statistics"].items()}}


def of_candidates(updates: Sequence[Update], sent: State, **_: Any) -> dict[str, Tensor]:
    """FedTiny: once a candidate is chosen, the average."""
    return average(updates, sent)


def variances(update: Update, memory: Memory, *, candidates: Sequence[State], **_: Any) -> str | None:
    """FedTiny: means and variances of the candidates' batch norms."""
    stats = update.more["statistics"]
    expected = [name for name in candidates[0] if name.endswith((MEAN, VAR))]
    if set(stats) != set(expected):
        return f"its statistics are of {', '.join(stats) or 'nothing'}, not of {', '.join(expected)}"
    for name, value in stats.items():
        if value.shape != (len(candidates), *candidates[0][name].shape):
            return f"its {name} has shape {tuple(value.shape)}, not one of {len(candidates)} candidates in front"
        if name.endswith(VAR) and (value < 0).any():
            return f"its {name} is below 0"
    return None


def a_loss_each(update: Update, memory: Memory, *, candidates: Sequence[State], **_: Any) -> str | None:
    """FedTiny: as many losses as candidates."""
    losses = update.numbers["losses"]
    right = isinstance(losses, list) and len(losses) == len(candidates)
    return None if right else f"its losses are {losses}, not {len(candidates)} numbers"


def _candidates(updates: Sequence[Update], loss: Tensor) -> Any:
    """Call the method with all layers joined."""
    each = [update.more["statistics"] for update in updates]
    mean, var = (
        torch.stack([torch.cat([stats[name].flatten(1) for name in _of(stats, kind)], 1) for stats in each]).double()
        for kind in (MEAN, VAR)
    )
    count = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    return batchnorm_candidates(mean, var, count, loss.double())


def _split(moments: Any, like: State) -> dict[str, Tensor]:
    """Take the layers apart again."""
    out: dict[str, Tensor] = {}
    for joined, kind in ((moments.mean, MEAN), (moments.var, VAR)):
        names = _of(like, kind)
        parts = joined.split([math.prod(like[name].shape[1:]) for name in names], 1)
        out |= {
            name: part.reshape(like[name].shape).to(like[name].dtype) for name, part in zip(names, parts, strict=True)
        }
    return out


def _of(state: Mapping[str, Tensor], kind: str) -> list[str]:
    return sorted(name for name in state if name.endswith(kind))
