"""Ten clients with digits of their own, and a small network that a server averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import normkit as nk
from normkit.claims.images import SPLIT, digits
from normkit.claims.training import Bed, Contest

CLIENTS, EACH, HIDDEN, ROUNDS, STEPS, BATCH, SERVER = 10, 80, 32, 50, 10, 16, 200
NORM = ("gain", "shift", "mean", "var")


class Run(NamedTuple):
    """How clients' digits differ, and what the server averages.

    classes: how many a client has. shifted: whether each client's digits have gains and shifts of their own. local:
    whether batch norms stay with their clients. share: of the rounds. permute: whether the start has other numbers.
    """

    classes: int = 10
    shifted: bool = False
    local: bool = False
    share: float = 1.0
    permute: bool = False


def data(run: Run, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each client's digits and labels, and those that it is asked, (clients, n, 64)."""
    x, labels = digits()
    x, chance = x.flatten(1), torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(x), generator=chance)
    first, held = rows[:SPLIT], rows[SPLIT + SERVER :]
    order, owned = torch.randperm(10, generator=chance), torch.zeros(CLIENTS, 10)
    for client in range(CLIENTS):
        owned[client, order[(client + torch.arange(run.classes)) % 10]] = 1 / run.classes
    mine = first[torch.multinomial(owned[:, labels[first]], EACH, replacement=True, generator=chance)]
    gains = 1 + run.shifted * torch.randn(CLIENTS, 1, 64, generator=chance)
    shifts = run.shifted * torch.randn(CLIENTS, 1, 64, generator=chance)
    asked = x[held].expand(CLIENTS, -1, -1)
    return gains * x[mine] + shifts, labels[mine], gains * asked + shifts, labels[held].expand(CLIENTS, -1)


def started(run: Run, seed: int) -> dict[str, Tensor]:
    """The weights before training, one set for all clients."""
    chance = torch.Generator().manual_seed(seed + 10**6 * run.permute)
    return {
        "out": torch.randn(HIDDEN, 10, generator=chance) / HIDDEN**0.5,
        "bias": torch.zeros(1, 10),
        "in": torch.randn(64, HIDDEN, generator=chance) / 8,
        "shift": torch.zeros(1, HIDDEN),
        "gain": torch.ones(1, HIDDEN),
        "mean": torch.zeros(1, HIDDEN),
        "var": torch.ones(1, HIDDEN),
    }


def answers(state: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
    """The scores (..., n, 10); in training the batch norm moves its running moments."""
    h, mean, var = x @ state["in"], state["mean"], state["var"]
    if training:
        mean, var = h.mean(-2, keepdim=True), h.var(-2, keepdim=True, correction=0)
        with torch.no_grad():
            state["mean"].lerp_(mean, 0.1)
            state["var"].lerp_(var, 0.1)
    h = state["gain"] * (h - mean) / (var + 1e-5).sqrt()
    return torch.relu(h + state["shift"]) @ state["out"] + state["bias"]


def joined(run: Run, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the clients of each seed (seeds, clients, ...) have after a round."""
    names, counts = list(state), torch.full((CLIENTS,), float(EACH))
    local = NORM if run.local else ()
    parts = [nk.fedbn_average(*(state[name][seed] for name in names), counts, entries=names, local=local)
             for seed in range(len(state["out"]))]  # fmt: skip
    return {name: torch.stack(own) for name, *own in zip(names, *parts, strict=True)}


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Let all clients train and the server join them, and return how many digits are right, of a hundred."""
    x, y, asked, right = (torch.stack(part) for part in zip(*(data(run, seed) for seed in seeds), strict=True))
    chance = torch.Generator().manual_seed(0)
    starts = [started(run, seed) for seed in seeds]
    state = {name: torch.stack([one[name].expand(CLIENTS, *one[name].shape) for one in starts]) for name in starts[0]}
    by = torch.tensor(rates).view(-1, 1, 1, 1)
    free = [name for name in state if name not in ("mean", "var")]
    for _ in range(int(ROUNDS * run.share)):
        state = {name: value.clone() for name, value in state.items()}
        for _ in range(STEPS):
            rows = torch.randint(x.shape[2], (CLIENTS, BATCH), generator=chance).expand(len(seeds), -1, -1)
            batch = x.gather(2, rows[..., None].expand(-1, -1, -1, 64))
            with torch.enable_grad():
                leaves = [state[name].requires_grad_() for name in free]
                out = answers(state, batch, True)
                loss = F.cross_entropy(out.flatten(0, 2), y.gather(2, rows).flatten(), reduction="sum") / BATCH
                slopes = torch.autograd.grad(loss, leaves)
            state |= {name: leaf.detach() - by * slope
                      for name, leaf, slope in zip(free, leaves, slopes, strict=True)}  # fmt: skip
        state = joined(run, state)
    with torch.no_grad():
        answer = answers(state, asked, False).argmax(-1)
    return (100 * (answer == right).float().mean((1, 2))).tolist()


CONTEST = Contest(scores, (0.03, 0.1, 0.3))
SHARED, OWN = Run(), Run(local=True)
SHIFTED_CLIENTS = Bed(
    "shifted-clients",
    "Ten clients of 80 digits each, with gains and shifts of their own. Each trains a network of one hidden layer of "
    "32 by 10 steps of gradient descent, at a variant's own best rate, and a server averages them; so 50 times. The "
    "accuracy is that on digits that nobody has, as each client sees them.",
    (
        CONTEST.known(
            "shifts",
            "Clients' shifts cost averaged batch norms 5 points or more.",
            SHARED,
            SHARED._replace(shifted=True),
            5.0,
        ),
    ),
    "Clients with few classes, many clients, large models, and rounds in which few clients take part.",
)
