"""The methods of this room on Flower: a strategy for its server, a mod for its clients, and a run in this process."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import statistics
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.federated.disparity_decomposition import disparity_decomposition
from normkit.federated.plans import plan
from normkit.federated.rounds import Taken, Told, Update, accept

KEPT = "normkit-local"  # the record of a client's context that holds what never leaves it
PUBLIC = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


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
        method: ``"average"``; ``"apfl"``, the same, whose clients keep a personal model, by :func:`keep_local`;
            ``"fedbn"`` and ``"fedrap"``, whose ``local`` entries stay with each client, likewise; ``"fedselect"``,
            whose clients also send masks; ``"fedlabel"``, whose clients also send what they learned from
            pseudo-labels; ``"fedloge"``, with the names of the ``classifier``, whose clients also send how many samples
            each class has; or ``"fedlaw"``, with ``loss(state, batch)``, the server's ``batches``, and the names of the
            ``parameters``; and the options of ``fedlaw``.
        local: entries that stay; ``surgery.statistics.federated.local_entries`` finds a model's batch norms.
        most: how many times as far as the median client a client may be.
        flower: arguments of Flower's ``FedAvg``, by name: fractions and numbers of nodes.
        options: of the method.

    Clients send a record of arrays, ``num-examples`` among their metrics, and what their method declares besides: a
    record ``mask`` (``fedselect``) or ``pseudo`` (``fedlabel``) with the names of the state's entries, and the metrics
    ``pseudo-labels`` (``fedlabel``) or ``classes``, a list (``fedloge``). Flower is not a part of any group of
    this package, whose versions it cannot share: ``pip install flwr``.
    """
    found = plan(method, local, options)
    most = check.number("strategy", "most", most, 1.0)
    return _strategy_class()(found, tuple(local), most, options, **(flower or {}))


def keep_local(local: Collection[str] = (), records: Collection[str] = ()) -> Callable[..., Any]:
    """Return a mod for a Flower client whose ``local`` entries stay with it, between rounds too.

    ``@client.train(mods=[keep_local(names)])``, and the same for ``evaluate``: what the server sends of them is
    replaced by the client's own, from its second round on, and what the client returns of them is not sent. So it is
    with whole ``records`` of arrays, such as APFL's personal model: what a client returns under such a name is among
    the message's records in its next round.
    """
    local, records = tuple(local), tuple(records)

    def mod(message: Any, context: Any, call_next: Callable[..., Any]) -> Any:
        _off()
        app = _flower("app")
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
        found = _flower("serverapp.strategy.strategy_utils").aggregate_metricrecords(contents, weighted_by)
        sound = [given for given in joint if given and len(given) % groups == 0 and min(given) >= 0]
        usual = statistics.mode(sorted(map(len, sound))) if sound else 0
        sound = [given for given in sound if len(given) == usual]
        if sound and sum(map(sum, sound)) > 0:
            parts = disparity_decomposition(torch.tensor(sound, dtype=torch.float64).view(len(sound), groups, -1))
            for name, value in zip(parts._fields, parts, strict=True):
                found[f"{name.strip('_')}-disparity"] = float(value)
        return found

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
    grid, arrays = _grid_class()(client, clients), _flower("app").ArrayRecord(dict(state))
    with _identify():
        return server.start(grid=grid, initial_arrays=arrays, num_rounds=rounds, timeout=3600, **start)


@contextlib.contextmanager
def _identify() -> Iterator[None]:
    """Let messages be made in this process, which Flower allows its own processes alone."""
    identity = _flower("supercore.task_identity").TaskIdentity
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(identity, name) for name in names}
    try:
        for name in names:
            setattr(identity, name, 1)
        yield
    finally:
        for name, value in before.items():
            setattr(identity, name, value)


def _off() -> None:
    for name, value in PUBLIC.items():
        os.environ.setdefault(name, value)


def _flower(part: str) -> Any:
    """A module of Flower."""
    if importlib.util.find_spec("flwr") is None:
        raise ValueError("flwr is not installed: pip install flwr, where this package's tested versions are not wanted")
    _off()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"flwr.{part}")


@functools.cache
def _strategy_class() -> type:
    app = _flower("app")
    base: Any = _flower("serverapp.strategy").FedAvg
    sampled = _flower("serverapp.strategy.strategy_utils").sample_nodes

    def recorded(told: Told) -> dict[str, Any]:
        records = {name: app.ArrayRecord(dict(state)) for name, state in told.records.items()}
        return {**records, **({"told": app.MetricRecord(dict(told.numbers))} if told.numbers else {})}

    class Combined(base):
        """Flower's sampling and evaluation, and this package's sums."""

        def __init__(self, plan, local, most, options, **flower):
            super().__init__(**flower)
            self.plan, self.local, self.most, self.options = plan, local, most, options
            self.memory: dict[str, Any] = {}
            self.refused: dict[int | str, dict[int, str]] = {}

        def start(self, grid, initial_arrays, *args, **kwargs):
            for ask in self.plan.asks:
                self._ask(ask, grid, kwargs.get("timeout", 3600))
            if self.plan.begun is not None:
                given = initial_arrays.to_torch_state_dict()
                initial_arrays = app.ArrayRecord(self.plan.begun(given, self.memory, **self.options))
            return super().start(grid, initial_arrays, *args, **kwargs)

        def _ask(self, ask, grid, timeout):
            """Ask all clients that are there, and take their answers."""
            number = max(self.min_train_nodes, len(list(grid.get_node_ids())))
            nodes, _ = sampled(grid, self.min_available_nodes, number)
            content = app.RecordDict({**recorded(ask.told(self.memory, **self.options)), "config": app.ConfigRecord()})
            messages = self._construct_messages(content, nodes, f"{app.MessageType.QUERY}.{ask.name}")
            replies = grid.send_and_receive(messages, timeout=timeout)
            updates, refused = self._read(replies, {}, ask.wanted)
            self._refuse(ask.name, refused)
            if not updates:
                raise RuntimeError(f"strategy: no client gave an answer to the query {ask.name!r} that can be used")
            ask.take(updates, self.memory, **self.options)

        def configure_train(self, server_round, arrays, config, grid):
            self.sent = arrays.to_torch_state_dict()
            messages = list(super().configure_train(server_round, arrays, config, grid))
            if self.plan.told is None:
                return messages
            return [self._with_told(message) for message in messages]

        def _with_told(self, message):
            node = message.metadata.dst_node_id
            told = recorded(self.plan.told(self.memory, node, **self.options))
            content = app.RecordDict({**message.content, **told})
            return app.Message(content, message_type=message.metadata.message_type, dst_node_id=node)

        def aggregate_train(self, server_round, replies):
            shared = {name: value for name, value in self.sent.items() if name not in self.local}
            replies = list(replies)
            updates, refused = self._read(replies, shared, self.plan.wanted)
            self._refuse(server_round, refused)
            if not updates:
                return app.ArrayRecord(self.sent), None
            found = self.plan.together(updates, shared, self.memory, self.options)
            nodes = {update.client for update in updates}
            contents = [reply.content for reply in replies if reply.metadata.src_node_id in nodes]
            told = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
            told["refused"] = len(refused)
            return app.ArrayRecord({**self.sent, **found}), told

        def _read(self, replies, sent, wanted) -> tuple[Taken, dict[int, str]]:
            """Return what clients sent that can be used, and why the others are refused."""
            good, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
            refused: dict[int, str] = {}
            updates = {}
            for reply in good:
                node = reply.metadata.src_node_id
                try:
                    updates[node] = self._update(reply.content, node, wanted)
                except (ValueError, TypeError, KeyError, EOFError, OSError) as error:
                    refused[node] = f"its reply cannot be read: {error}"
            found, why = accept(updates, sent, self.most, wanted, self.memory, self.options)
            return found, refused | why

        def _refuse(self, when, refused):
            self.refused[when] = refused
            for node, why in refused.items():
                importlib.import_module("flwr.common.logger").log(30, "%s: %s refused: %s", when, node, why)

        def _update(self, content, node, wanted):
            records, [numbers] = dict(content.array_records), content.metric_records.values()
            roles = (*wanted.more, *wanted.records)
            more = {role: records.pop(role).to_torch_state_dict() for role in roles if role in records}
            [arrays] = records.values() or [app.ArrayRecord()]
            state = {k: v for k, v in arrays.to_torch_state_dict().items() if k not in self.local}
            asked = {name: numbers.pop(name) for name in (*wanted.numbers, *wanted.signed) if name in numbers}
            return Update(state, numbers[self.weighted_by_key], more, asked, node)

    return Combined


@functools.cache
def _grid_class() -> type:
    app = _flower("app")
    base: Any = _flower("serverapp").Grid

    class Here(base):
        """Clients of this process, called in turn."""

        def __init__(self, client: Any, clients: int):
            self.client = client
            self.contexts = {
                1 + i: app.Context(
                    run_id=1,
                    node_id=1 + i,
                    node_config={"partition-id": i, "num-partitions": clients},
                    state=app.RecordDict(),
                    run_config={},
                )
                for i in range(clients)
            }

        def set_run(self, run):
            raise NotImplementedError("clients of this process belong to no run")

        @property
        def run(self):
            raise NotImplementedError("clients of this process belong to no run")

        def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
            return app.Message(content, message_type=message_type, dst_node_id=dst_node_id, group_id=group_id, ttl=ttl)

        def get_node_ids(self) -> Iterable[int]:
            return list(self.contexts)

        def push_messages(self, messages):
            raise NotImplementedError("clients of this process are called by send_and_receive")

        def pull_messages(self, message_ids):
            raise NotImplementedError("clients of this process are called by send_and_receive")

        def send_and_receive(self, messages, *, timeout=None):
            return [self._asked(message) for message in messages]

        def _asked(self, message):
            node = message.metadata.dst_node_id
            own = app.Message(message.content.copy(), message_type=message.metadata.message_type, dst_node_id=node)
            try:
                return self.client(own, self.contexts[node])
            except Exception as error:
                return app.Message(app.Error(code=0, reason=repr(error)), reply_to=own)

    return Here
