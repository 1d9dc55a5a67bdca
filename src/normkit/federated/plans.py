"""What each federated method declares, and how those put states together whose servers remember nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.federated import _states, fedlaw, servers
from normkit.federated.classwise_average import classwise_average
from normkit.federated.fedlabel_aggregate import fedlabel_aggregate
from normkit.federated.fedselect_aggregate import fedselect_aggregate
from normkit.federated.rounds import MASK, PSEUDO, Ask, Plan, State, Update, Wanted, alike, average


def learned(
    updates: Sequence[Update],
    sent: State,
    *,
    loss: Callable[[State, Any], Tensor],
    batches: Iterable[Any],
    parameters: Collection[str],
    **options: Any,
) -> dict[str, Tensor]:
    """FedLAW: shares of the clients, and how far their sum shrinks, learned on the server's batches.

    What is not among the ``parameters`` is averaged; where the loss calls the model in training, as the authors do, its
    batch norms then go on from there on the server's batches.
    """
    together = {name: value.clone() for name, value in average(updates, sent).items()}

    def of_all(state: State, batch: Any) -> Tensor:
        return loss({**together, **state}, batch)

    own = [{name: update.state[name] for name in parameters} for update in updates]
    counts = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    found = fedlaw.learn(own, counts, of_all, batches, **options).state
    return {**together, **{name: value.to(sent[name].dtype) for name, value in found.items()}}


def labelled_and_not(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """FedLabel: states learned from labels, all alike, and from pseudo-labels, by their number; then both."""
    names = tuple(sent)
    branches = [_states.stack([update.state for update in updates])]
    branches.append(_states.stack([{**update.state, **update.more[PSEUDO]} for update in updates]))
    number = torch.tensor([float(update.numbers["pseudo-labels"]) for update in updates], dtype=torch.float64)
    values = [branch[name] for branch in branches for name in names]
    return dict(zip(names, fedlabel_aggregate(*values, number, entries=names), strict=True))


def by_class(updates: Sequence[Update], sent: State, *, classifier: Collection[str]) -> dict[str, Tensor]:
    """FedLoGe: rows of the classifier by each client's share of the class, what else there is by samples."""
    found = average(updates, sent)
    count = torch.tensor([update.samples for update in updates], dtype=torch.float64)
    classes = torch.tensor([update.numbers["classes"] for update in updates], dtype=torch.float64)
    for name in classifier:
        value = torch.stack([update.state[name] for update in updates])
        rows = value if value.dim() > 2 else value.reshape(*value.shape[:2], -1)
        [joined] = classwise_average(rows, count, classes, entries=(name,))
        found[name] = joined.reshape(sent[name].shape)
    return found


def where_shared(updates: Sequence[Update], sent: State) -> dict[str, Tensor]:
    """FedSelect: each number over the clients to which it is shared; where nobody shares it stays as it was sent."""
    names = tuple(sent)
    masked = tuple(name for name in names if all(name in update.more[MASK] for update in updates))
    stacked = _states.stack([update.state for update in updates])
    masks = [torch.stack([update.more[MASK][name] for update in updates]) for name in masked]
    values = [stacked[name] for name in names]
    found = fedselect_aggregate(*values, *masks, entries=names, masked=masked)[: len(masked)]
    alone = {name: (mask != 0).all(0) for name, mask in zip(masked, masks, strict=True)}
    shared = {name: torch.where(alone[name], sent[name], v) for name, v in zip(masked, found, strict=True)}
    return {**sent, **shared}


PLANS = {
    "average": Plan(average),
    "fedbn": Plan(average, ("fedbn-average",), keeps=True),
    "fedrap": Plan(alike, ("fedrap", "fedrap-loss"), keeps=True, own=True),
    "apfl": Plan(alike, ("apfl-step", "apfl-alpha"), own=True),
    "fedlabel": Plan(
        labelled_and_not,
        ("fedlabel-select", "fedlabel-loss", "fedlabel-aggregate"),
        wanted=Wanted(more=(PSEUDO,), numbers=("pseudo-labels",)),
    ),
    "fedloge": Plan(
        by_class,
        ("classwise-average", "classifier-norm-reset", "norm-transfer"),
        wanted=Wanted(numbers=("classes",)),
        needs=("classifier",),
    ),
    "fedselect": Plan(
        where_shared, ("fedselect-grow", "fedselect-step", "fedselect-aggregate"), wanted=Wanted(more=(MASK,))
    ),
    "fedlaw": Plan(
        learned,
        ("fedlaw", "fedlaw-aggregate"),
        needs=("loss", "batches", "parameters"),
        takes=("function", "optimizer", "lr", "epochs"),
    ),
    "fedld": Plan(servers.principal, ("principal-gradient", "margin-log-loss"), takes=("share",), remembers=True),
    "pgfed": Plan(
        servers.personal,
        ("pgfed-client", "pgfed-server"),
        wanted=Wanted(more=("gradient",), signed=("risk", "alpha"), sound=servers.whole_gradient),
        needs=("parameters",),
        takes=("mu", "momentum"),
        remembers=True,
        told=servers.of_the_others,
    ),
    "ggeur": Plan(
        servers.answered,
        ("pooled-covariance", "geometric-samples"),
        remembers=True,
        told=servers.shape_of_all,
        asks=(Ask("statistics", Wanted(records=("statistics",), sound=servers.moments), servers.pool),),
    ),
    "fedlog": Plan(
        servers.with_prototypes,
        ("fedlog-classifier", "fedlog-branches", "fedlog-synthetic", "fedlog-scaling"),
        wanted=Wanted(records=("prototypes", "generator"), numbers=("class-rate",), sound=servers.prototypes),
        remembers=True,
        told=servers.synthetic,
    ),
    "fedtiny": Plan(
        servers.of_candidates,
        ("batchnorm-candidates",),
        needs=("candidates",),
        asks=(
            Ask("statistics", Wanted(records=("statistics",), sound=servers.variances), servers.merge, servers.tell),
            Ask("losses", Wanted(signed=("losses",), sound=servers.a_loss_each), servers.choose, servers.merged),
        ),
        begun=servers.chosen,
    ),
}


def plan(method: str, local: Collection[str], options: Mapping[str, Any]) -> Plan:
    """Return what a method declares, if it is given what it needs."""
    found = declared("strategy", "method", method, options)
    missing = [name for name in found.needs if name not in options]
    if missing:
        raise TypeError(f"strategy: method={method!r} needs {', '.join(missing)}")
    if found.keeps != bool(local):
        verb = "needs" if found.keeps else "takes no"
        raise ValueError(f"strategy: method={method!r} {verb} local entries; it is {list(local)}")
    return found


def declared(owner: str, name: str, method: str, options: Collection[str]) -> Plan:
    """Return what a method declares; options that it does not take are refused."""
    whole = [strategy for strategy, found in PLANS.items() if method in found.parts]
    if method not in PLANS and whole:
        raise ValueError(
            f"{owner}: {name}={method!r} is a part of {whole[0]!r}: take that for the server, and "
            f"nk.create({method!r}, ...) where clients train"
        )
    found = PLANS[check.choice(owner, name, method, tuple(PLANS))]
    unknown = sorted({*options} - {*found.needs, *found.takes})
    if unknown:
        raise TypeError(f"{owner}: {name}={method!r} does not take {', '.join(unknown)}")
    return found
