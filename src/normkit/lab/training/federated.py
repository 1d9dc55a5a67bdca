"""The training of one run by many owners of data: a step is a round.

Each client takes some steps of its own from the server's state, the server puts the states together by the functions
that Flower's strategies use (:mod:`normkit.federated.rounds`), and refuses what they refuse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.choice import parsed
from normkit.federated import plans, rounds
from normkit.lab import logs
from normkit.lab.plan import clients, measures
from normkit.lab.plan.settings import spell
from normkit.lab.training.single import Training
from normkit.surgery.statistics.federated import local_entries, pool
from normkit.weight import project, spheres

FARTHEST = 1e3  # how many times as far from what was sent as the median client a client may be

State = dict[str, Tensor]


class Federated(Training):
    """A run of many owners of data while it lasts: the server's state, and what each client keeps."""

    def _prepare(self, model: nn.Module) -> None:
        super()._prepare(model)
        run, settings = self.run, self.settings
        name, self.options = parsed(run.variant.aggregation)
        self.plan = plans.PLANS[name]
        self.local = set(local_entries(model)) if run.variant.keeps else set()
        self.clients, self.batches = clients.divide(self.task.data, settings.clients, settings.split, run.seed)
        if "clients" in self.plan.takes:
            self.options = {"clients": len(self.clients), **self.options}
        self.server: State = self._copied()
        self.kept: list[State] = [{name: self.server[name] for name in self.local} for _ in self.clients]
        self.memory: dict[str, Any] = {}
        self.remembered: list[State] = [{} for _ in self.clients]  # what a method lets each client remember
        self.refused = 0

    def _copied(self) -> State:
        return {name: value.detach().clone() for name, value in self.plain.state_dict().items()}

    def _train_step(self) -> None:
        rate, updates, losses, gradients = self.rate(), {}, [], []
        self.step += 1
        for k, client in enumerate(self.clients):
            loss, gradient, more = self._train_client(k, rate)
            state = self._copied()
            self.kept[k] = {name: state.pop(name) for name in self.local}
            updates[k] = rounds.Update(state, client.count, more)
            losses.append(loss)
            gradients.append(gradient)
        self.loss, self.gradient = torch.stack(losses).mean(), torch.stack(gradients).mean()
        self._aggregate(updates)

    def _train_client(self, k: int, rate: float) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Train a client from the server's state; return its last loss, the gradient's norm, and what it also sends."""
        self.plain.load_state_dict({**self.server, **self.kept[k]})
        self.plain.train()  # as a server that learns may not have left it
        steps, own = self.settings.local_steps, _Own(self, k)
        optimizer = self._make_optimizer(rate)
        if spheres(self.plain):
            project(self.plain, optimizer)
        for at in range(steps):
            source, number = self.clients[k], (self.step - 1) * steps + at + 1
            batch = source.train(self.run.seed, number)
            with self.seen.sampled(self.step) if k == at == 0 and self.probed else nullcontext():
                loss = self._loss_of_batch(batch, source, number)
                self.accelerator.backward(loss)
            own.push()
            gradient = self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.clip or math.inf)
            optimizer.step()
            optimizer.zero_grad()
            self.tokens += self.task.size(batch)
        return loss.detach(), gradient.detach(), own.ended(steps)

    def _aggregate(self, updates: dict[int, rounds.Update]) -> None:
        shared = {name: value for name, value in self.server.items() if name not in self.local}
        accepted, refused = rounds.accept(updates, shared, FARTHEST)
        for k, why in refused.items():
            self.log.write(logs.NOTE, text=f"round {self.step}: client {k} refused: {why}")
        self.refused += len(refused)
        if accepted:
            self.server |= self.plan.together(accepted, shared, self.memory, {**self._server_data(), **self.options})

    def _server_data(self) -> dict[str, Any]:
        """Return what a method needs of a server that has data of its own; a tied weight has all its names."""
        parameters = self.plain.named_parameters(remove_duplicate=False)
        resources = {
            "loss": self._loss_of_state,
            "batches": [self._mine(batch) for batch in self.batches],
            "parameters": [name for name, _ in parameters if name not in self.local],
        }
        return {name: resources[name] for name in self.plan.needs}

    def _loss_of_state(self, state: Mapping[str, Tensor], batch: Any) -> Tensor:
        """Return the loss of a state on a batch; its batch norms take the batch's statistics, and remember them."""
        model = self.plain.train(self.task.size(batch) > 1)
        return self.task.loss(_Called(model, {**self._whole(), **state}), batch)  # type: ignore[arg-type]

    def _whole(self) -> State:
        """Return the server's state for a client not seen before: what others keep is joined."""
        if not self.local:
            return self.server
        return {**self.server, **pool(self.kept, [client.count for client in self.clients])}

    @torch.no_grad()
    def _evaluate(self) -> float:
        """Measure each client's state on held-out data like its own, and the server's on all of it."""
        self.model.eval()
        labels = self.clients[0].classes is not None and self.task.accuracy is not None
        metrics = self._by_client() if labels else self._plain_loss()
        self.plain.train()
        return self._keep(metrics)

    def _by_client(self) -> dict[str, Any]:
        of_all = self._by_class(self._whole())
        each = [
            self._by_class({**self.server, **kept}, client) if kept or client.view else of_all
            for client, kept in zip(self.clients, self.kept, strict=True)
        ]
        weighted = [_weigh(table, client.classes) for table, client in zip(each, self.clients, strict=True)]
        if not any(weighted):
            raise ValueError(f"no client has a class that is held out; change {spell('val')} or {spell('split')}")
        losses, right = zip(*filter(None, weighted), strict=True)
        unmeasured = [f"client {k}" for k, pair in enumerate(weighted) if pair is None]
        if unmeasured and not self.step:
            text = f"without an accuracy, as no class of theirs is held out: {', '.join(unmeasured)}"
            self.log.write(logs.NOTE, text=text)
        number, _, hits = of_all.sum(0).tolist()
        return {
            measures.LOSS: statistics.fmean(losses),
            measures.ACCURACY: hits / number,
            measures.CLIENTS: statistics.fmean(right),
            measures.WORST: min(right),
            measures.SPREAD: statistics.pstdev(right),
            measures.EACH: [pair and pair[1] for pair in weighted],
        }

    def _by_class(self, state: State, client: clients.Client | None = None) -> Tensor:
        """Return for each class (C, 3) how many held-out samples there are, the sum of their losses, and the hits."""
        self.plain.load_state_dict(state)
        count = len(self.clients[0].classes)  # type: ignore[arg-type]
        table = torch.zeros(count, 3, dtype=torch.float64)
        for batch in self.validation:
            with self.accelerator.autocast():
                scores, labels = self.task.scored(self.model, client.view_of(batch) if client else batch)  # type: ignore[misc]
            losses = F.cross_entropy(scores.float(), labels, reduction="none")
            stats = torch.stack([torch.ones_like(losses), losses, (scores.argmax(-1) == labels).float()], 1)
            known = labels < count
            table.index_add_(0, labels[known].cpu(), stats[known].double().cpu())
        return table

    def _plain_loss(self) -> dict[str, Any]:
        """Return the mean loss of the clients' states over all that is held out, where samples have no classes."""
        means: list[float] = []
        for client, kept in zip(self.clients, self.kept, strict=True):
            if not means or kept or client.view:
                self.plain.load_state_dict({**self.server, **kept})
                with self.accelerator.autocast():
                    losses = [float(self.task.loss(self.model, client.view_of(batch))) for batch in self.validation]
                parts = [n * loss for n, loss in zip(self.weights, losses, strict=True) if n]
                means.append(sum(parts) / self.weight)
        return {measures.LOSS: statistics.fmean(means)}

    def get_state(self) -> Any:
        """Return the server's state and memory, and what the clients keep."""
        return {
            "server": self.server,
            "kept": self.kept,
            "refused": self.refused,
            "memory": self.memory,
            "remembered": self.remembered,
        }

    def set_state(self, state: Any) -> None:
        """Put back what :meth:`get_state` returned."""
        self.plain.load_state_dict(state["server"])
        self.server, self.kept, self.refused = state["server"], state["kept"], state["refused"]
        self.memory, self.remembered = state.get("memory", {}), state.get("remembered", self.remembered)

    def _end_of_log(self) -> dict[str, Any]:
        sent = sum(value.nbytes for name, value in self.server.items() if name not in self.local)
        return {"bytes_per_round": 2 * len(self.clients) * sent, "refused": self.refused}


class _Own:
    """What a method lets a client do beside its steps: push its gradients, and send more than its state."""

    def __init__(self, training: Federated, k: int):
        self.training, self.k, self.local = training, k, training.plan.local
        self.gradients: State = {}

    @torch.no_grad()
    def push(self) -> None:
        """Add to the gradients what the method has a client add; remember its own where they are asked for."""
        if self.local is None:
            return
        training, local = self.training, self.local
        named = {name: p for name, p in training.plain.named_parameters() if p.grad is not None}
        if local.ended is not None:
            for name, p in named.items():
                self.gradients[name] = self.gradients.get(name, 0) + p.grad
        notes = training.remembered[self.k]
        shared = {name: p for name, p in named.items() if name not in training.local}
        more = local.push(shared, training.server, training.memory, notes, **training.options)
        for name, value in more.items():
            named[name].grad += value

    def ended(self, steps: int) -> dict[str, Any]:
        """Remember and send what the method wants of a client after its steps."""
        if self.local is None or self.local.ended is None:
            return {}
        training = self.training
        means = {name: value / steps for name, value in self.gradients.items() if name not in training.local}
        training.remembered[self.k], more = self.local.ended(means, training.remembered[self.k], **training.options)
        return more


class _Called:
    """A model that is called with a state of another."""

    def __init__(self, model: nn.Module, state: Mapping[str, Tensor]):
        self.model, self.state = model, state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self.model, dict(self.state), args, kwargs, tie_weights=False)


def _weigh(table: Tensor, classes: Tensor | None) -> tuple[float, float] | None:
    """Return loss and accuracy where each class counts by its share among a client's samples; None where it has none.

    >>> _weigh(torch.tensor([[2.0, 1.0, 2.0], [4.0, 4.0, 1.0]]).double(), torch.tensor([0.5, 0.5]))
    (0.75, 0.625)
    """
    assert classes is not None
    share = torch.where(table[:, 0] > 0, classes.double(), 0.0)
    means = table[:, 1:] / table[:, :1].clamp(min=1)
    return tuple((share / share.sum() @ means).tolist()) if share.sum() > 0 else None
