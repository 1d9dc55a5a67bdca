"""What is made of Flower's classes: a strategy, and a grid of clients in this process. Imported where Flower is."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from normkit.federated._flwr import load
from normkit.federated.plans import check_names
from normkit.federated.rounds import Instructions, Update, UpdateList, accept

app = load("app")
FedAvg: Any = load("serverapp.strategy").FedAvg
Grid: Any = load("serverapp").Grid
sampled = load("serverapp.strategy.strategy_utils").sample_nodes


def recorded(message: Instructions) -> dict[str, Any]:
    """Return what a client is told, as Flower's records."""
    records = {name: app.ArrayRecord(dict(state)) for name, state in message.records.items()}
    return {**records, **({"told": app.MetricRecord(dict(message.numbers))} if message.numbers else {})}


class Combined(FedAvg):
    """Flower's sampling and evaluation, and this package's sums."""

    def __init__(self, plan, local, most, options, **flower):
        super().__init__(**flower)
        self.plan, self.local, self.most, self.options = plan, local, most, options
        self.memory: dict[str, Any] = {}
        self.refused: dict[int | str, dict[int, str]] = {}
        self.counted: dict[str, int] = {}  # how many clients there are, for a method that takes their number

    def start(self, grid, initial_arrays, *args, **kwargs):
        check_names(self.options, [name for name in initial_arrays if name not in self.local])
        for ask in self.plan.asks:
            self._ask(ask, grid, kwargs.get("timeout", 3600))
        if self.plan.begun is not None:
            arrays = initial_arrays.to_torch_state_dict()
            initial_arrays = app.ArrayRecord(self.plan.begun(arrays, self.memory, **self.options))
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
        if "clients" in self.plan.takes:
            self.counted["clients"] = max(self.counted.get("clients", 0), len(list(grid.get_node_ids())))
        if self.plan.told is None:
            return messages
        return [self._with_records(message) for message in messages]

    def _with_records(self, message):
        node = message.metadata.dst_node_id
        records = recorded(self.plan.told(self.memory, node, **self.options))
        content = app.RecordDict({**message.content, **records})
        return app.Message(content, message_type=message.metadata.message_type, dst_node_id=node)

    def aggregate_train(self, server_round, replies):
        shared = {name: value for name, value in self.sent.items() if name not in self.local}
        replies = list(replies)
        updates, refused = self._read(replies, shared, self.plan.wanted)
        self._refuse(server_round, refused)
        if not updates:
            return app.ArrayRecord(self.sent), None
        state = self.plan.together(updates, shared, self.memory, {**self.counted, **self.options})
        nodes = {update.client for update in updates}
        contents = [reply.content for reply in replies if reply.metadata.src_node_id in nodes]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        metrics["refused"] = len(refused)
        return app.ArrayRecord({**self.sent, **state}), metrics

    def _read(self, replies, sent, extras) -> tuple[UpdateList, dict[int, str]]:
        """Return what clients sent that can be used, and why the others are refused."""
        good, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        refused: dict[int, str] = {}
        updates = {}
        for reply in good:
            node = reply.metadata.src_node_id
            try:
                updates[node] = self._update(reply.content, node, extras)
            except (ValueError, TypeError, KeyError, EOFError, OSError) as error:
                refused[node] = f"its reply cannot be read: {error}"
        usable, why = accept(updates, sent, self.most, extras, self.memory, self.options)
        return usable, refused | why

    def _refuse(self, when, refused):
        self.refused[when] = refused
        for node, why in refused.items():
            importlib.import_module("flwr.common.logger").log(30, "%s: %s refused: %s", when, node, why)

    def _update(self, content, node, extras):
        records, [numbers] = dict(content.array_records), content.metric_records.values()
        roles = (*extras.more, *extras.records)
        more = {role: records.pop(role).to_torch_state_dict() for role in roles if role in records}
        [arrays] = records.values() or [app.ArrayRecord()]
        state = {k: v for k, v in arrays.to_torch_state_dict().items() if k not in self.local}
        asked = {name: numbers.pop(name) for name in (*extras.numbers, *extras.signed) if name in numbers}
        return Update(state, numbers[self.weighted_by_key], more, asked, node)


class Here(Grid):
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
        return [self._answer(message) for message in messages]

    def _answer(self, message):
        node = message.metadata.dst_node_id
        own = app.Message(message.content.copy(), message_type=message.metadata.message_type, dst_node_id=node)
        try:
            return self.client(own, self.contexts[node])
        except Exception as error:
            return app.Message(app.Error(code=0, reason=repr(error)), reply_to=own)
