"""The methods of this room on Flower: a strategy for its server, a mod for its clients, and a run in this process."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.federated._flwr import load
from normkit.federated.disparity_decomposition import disparity_decomposition
from normkit.federated.plans import entries, plan

KEPT = "normkit-local"  # the record of a client's context that holds what never leaves it


def strategy(
    method: str = "average", *, local: Collection[str] = (), most: float = 1e3, flower: Any = None, **options: Any
) -> Any:
    """Return a Flower ``Strategy`` that puts the clients' states together by a method of this room.

    Sums are in float64, whole numbers are rounded, and the order of the replies changes no bit. A client whose state
    has other names or shapes, NaN or infinities, no examples, or is ``most`` times as far from what was sent as the
    median client's, is refused: the round goes on without it, and ``strategy.refused[round]`` says why. Nothing of a
    client's is unpickled. Telemetry of Flower and Ray is switched off by their environment variables, unless these are
    set.

    Args:
        method: a name of ``normkit list --kind strategy``, such as ``"average"``. ``docs/federated.md`` says of
            each what its server does, what its clients send, and which options it needs. With ``"fedbn"`` and
            ``"fedrap"`` the ``local`` entries stay with each client, by :func:`keep_local`.
        local: entries that stay; ``surgery.statistics.federated.local_entries`` finds a model's batch norms.
        most: how many times as far as the median client a client may be.
        flower: arguments of Flower's ``FedAvg``, by name: fractions and numbers of nodes.
        options: of the method.

    Clients send a record of arrays, ``num-examples`` among their metrics, and what their method declares besides.
    Records such as ``mask`` (``fedselect``) have the names of the state's entries. Flower is not a part of any group of
    this package, whose versions it cannot share: ``pip install flwr``.
    """
    local = entries("strategy", "local", local)
    declaration = plan(method, local, options)
    most = check.number("strategy", "most", most, 1.0)
    load("app")
    from normkit.federated._flower_classes import Combined

    return Combined(declaration, local, most, options, **(flower or {}))


def keep_local(local: Collection[str] = (), records: Collection[str] = ()) -> Callable[..., Any]:
    """Return a mod for a Flower client whose ``local`` entries stay with it, between rounds too.

    ``@client.train(mods=[keep_local(names)])``, and the same for ``evaluate``: what the server sends of them is
    replaced by the client's own, from its second round on, and what the client returns of them is not sent. So it is
    with whole ``records`` of arrays, such as APFL's personal model: what a client returns under such a name is among
    the message's records in its next round.
    """
    local, records = entries("keep_local", "local", local), entries("keep_local", "records", records)

    def mod(message: Any, context: Any, call_next: Callable[..., Any]) -> Any:
        app = load("app")
        for record in message.content.array_records.values():
            record.update(context.state.array_records.get(KEPT, {}))
        for name in records:
            if f"{KEPT}-{name}" in context.state.array_records:
                message.content[name] = context.state.array_records[f"{KEPT}-{name}"]
        reply = call_next(message, context)
        if not reply.has_error():
            for name in records:
                if name in reply.content.array_records:
                    context.state[f"{KEPT}-{name}"] = reply.content.pop(name)
            kept: dict[str, Any] = {}
            for record in reply.content.array_records.values():
                kept |= {name: record.pop(name) for name in local if name in record}
            if kept:
                context.state[KEPT] = app.ArrayRecord(kept)
        return reply

    return mod


def disparity(groups: int) -> Callable[..., Any]:
    """Return what tells, of the clients' counts, where unfairness lies: ``flower={"evaluate_metrics_aggr_fn": ...}``.

    Each client sends with its evaluation the metric ``joint``, a list: how many of its samples there are of each group
    and prediction, group by group. ``disparity-decomposition`` splits them into the metrics ``unique-disparity``,
    ``redundant-``, ``masked-``, ``global-`` and ``local-disparity``, in bits. A client whose counts are below 0 or not
    as many as most clients' is left out of them; all other metrics are averaged as Flower does.

    Args:
        groups: how many there are.
    """
    check.size("disparity", "groups", groups)

    def aggregate(contents: list[Any], weighted_by: str) -> Any:
        joint = [metrics.pop("joint", []) for content in contents for metrics in content.metric_records.values()]
        record = load("serverapp.strategy.strategy_utils").aggregate_metricrecords(contents, weighted_by)
        sound = [counts for counts in joint if counts and len(counts) % groups == 0 and min(counts) >= 0]
        usual = statistics.mode(sorted(map(len, sound))) if sound else 0
        sound = [counts for counts in sound if len(counts) == usual]
        if sound and sum(map(sum, sound)) > 0:
            parts = disparity_decomposition(torch.tensor(sound, dtype=torch.float64).view(len(sound), groups, -1))
            for name, value in zip(parts._fields, parts, strict=True):
                record[f"{name.strip('_')}-disparity"] = float(value)
        return record

    return aggregate


def simulate(client: Any, server: Any, state: Mapping[str, Tensor], *, clients: int, rounds: int, **start: Any) -> Any:
    """Run a Flower client app under a strategy in this process, one client after the other, and return its result.

    For tests and small studies: nothing is started, where Flower's own simulation takes a Ray cluster. A client that
    raises is left out of its round.

    Args:
        client: a ``flwr.clientapp.ClientApp``; ``context.node_config["partition-id"]`` says which client it is.
        server: a strategy.
        state: of the model at the start.
        clients: how many.
        rounds: how many.
        start: further arguments of ``Strategy.start``, such as ``evaluate_fn``.
    """
    check.size("simulate", "clients", clients), check.size("simulate", "rounds", rounds)
    arrays = load("app").ArrayRecord(dict(state))
    from normkit.federated._flower_classes import Here

    grid = Here(client, clients)
    with _identify():
        return server.start(grid=grid, initial_arrays=arrays, num_rounds=rounds, timeout=3600, **start)


@contextlib.contextmanager
def _identify() -> Iterator[None]:
    """Let messages be made in this process, which Flower allows its own processes alone."""
    identity = load("supercore.task_identity").TaskIdentity
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(identity, name) for name in names}
    try:
        for name in names:
            setattr(identity, name, 1)
        yield
    finally:
        for name, value in before.items():
            setattr(identity, name, value)
