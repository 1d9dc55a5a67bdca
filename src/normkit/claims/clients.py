"""Ten clients with digits of their own, and a small network that a server averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import normkit as nk
from normkit.claims.images import SPLIT, digits
from normkit.claims.training import Bed, Contest

CLIENTS, EACH, HIDDEN, ROUNDS, STEPS, BATCH, SERVER, FILLED = 10, 80, 32, 50, 10, 16, 200, 40
NORMS: dict[str, Any] = {
    "none": lambda h: h,
    "layernorm": lambda h: F.layer_norm(h, h.shape[-1:]),
    "feature-norm": lambda h: nk.FeatureNorm(HIDDEN)(h.flatten(0, -2)).view_as(h),
}


class Run(NamedTuple):
    """How clients' digits differ, the norm before the last layer, and what the server does.

    split: "alike", "one" or "two" classes a client, or "uneven", shares of classes by a Dirichlet law of 0.1. shifted:
    whether each client's digits have gains and shifts of their own. norm: "none", "layernorm", "feature-norm" or
    "batchnorm". local: whether batch norms stay with their clients. learned: whether the server learns its weights.
    hidden: whether there is a hidden layer. filled: whether clients draw features of the classes that they lack.
    rounds: how many. share: of them. permute: whether the start has other numbers.
    """

    split: str = "alike"
    shifted: bool = False
    norm: str = "none"
    local: bool = False
    learned: bool = False
    hidden: bool = True
    filled: bool = False
    rounds: int = ROUNDS
    share: float = 1.0
    permute: bool = False


def shares(run: Run, chance: torch.Generator) -> Tensor:
    """How much of each class each client has, (clients, 10)."""
    if run.split == "uneven":
        gamma = torch.distributions.Gamma(torch.tensor(0.1), torch.tensor(1.0))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=chance)))
            drawn = gamma.sample((CLIENTS, 10)) + 1e-6
        return drawn / drawn.sum(1, keepdim=True)
    classes = {"alike": 10, "one": 1, "two": 2}[run.split]
    order = torch.randperm(10, generator=chance)
    owned = torch.zeros(CLIENTS, 10)
    for client in range(CLIENTS):
        owned[client, order[(client + torch.arange(classes)) % 10]] = 1 / classes
    return owned


def data(run: Run, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Each client's digits and labels, those that it is asked, (clients, n, 64), and the server's own."""
    x, labels = digits()
    x, chance = x.flatten(1), torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(x), generator=chance)
    seen, own, held = rows[:SPLIT], rows[SPLIT : SPLIT + SERVER], rows[SPLIT + SERVER :]
    weights = shares(run, chance)[:, labels[seen]]
    mine = seen[torch.multinomial(weights, EACH, replacement=True, generator=chance)]
    gains = 1 + run.shifted * torch.randn(CLIENTS, 1, 64, generator=chance)
    shifts = run.shifted * torch.randn(CLIENTS, 1, 64, generator=chance)
    asked = x[held].expand(CLIENTS, -1, -1)
    return (gains * x[mine] + shifts, labels[mine], gains * asked + shifts, labels[held].expand(CLIENTS, -1), x[own],
            labels[own])  # fmt: skip


def filled(x: Tensor, y: Tensor, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features of all classes for each client: its own, and drawn ones around the pooled mean of each class."""
    drawn = []
    for label in range(10):
        own = [rows[labels == label].double() for rows, labels in zip(x, y, strict=True)]
        means = torch.stack([rows.mean(0) if len(rows) else x.new_zeros(64).double() for rows in own])
        spreads = torch.stack([rows.mT.cov(correction=0) if len(rows) else torch.eye(64).double() for rows in own])
        pooled = nk.pooled_covariance(means, spreads, torch.tensor([float(len(rows)) for rows in own]).double())
        noise = torch.randn(1, CLIENTS * FILLED, 64, generator=chance).double()
        samples = nk.geometric_samples(pooled.mean[None], pooled.covariance, noise)[0]
        drawn.append(samples.view(CLIENTS, FILLED, 64).float())
    labels = torch.arange(10).repeat_interleave(FILLED).expand(CLIENTS, -1)
    return torch.cat([x, *drawn], 1), torch.cat([y, labels], 1)


def started(run: Run, seed: int) -> dict[str, Tensor]:
    """The weights before training, one set for all clients."""
    chance = torch.Generator().manual_seed(seed + 10**6 * run.permute)
    width = HIDDEN if run.hidden else 64
    state = {"out": torch.randn(width, 10, generator=chance) / width**0.5, "bias": torch.zeros(1, 10)}
    if run.hidden:
        state |= {"in": torch.randn(64, HIDDEN, generator=chance) / 8, "shift": torch.zeros(1, HIDDEN)}
    if run.norm == "batchnorm":
        state |= {"gain": torch.ones(1, HIDDEN), "mean": torch.zeros(1, HIDDEN), "var": torch.ones(1, HIDDEN)}
    return state


def answers(run: Run, state: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
    """The scores (..., n, 10); in training a batch norm moves its running moments."""
    if not run.hidden:
        return x @ state["out"] + state["bias"]
    h = x @ state["in"]
    if run.norm == "batchnorm":
        mean, var = state["mean"], state["var"]
        if training:
            mean, var = h.mean(-2, keepdim=True), h.var(-2, keepdim=True, correction=0)
            with torch.no_grad():
                state["mean"].lerp_(mean, 0.1)
                state["var"].lerp_(var, 0.1)
        h = state["gain"] * (h - mean) / (var + 1e-5).sqrt()
        return torch.relu(h + state["shift"]) @ state["out"] + state["bias"]
    return NORMS[run.norm](torch.relu(h + state["shift"])) @ state["out"] + state["bias"]


def joined(run: Run, state: dict[str, Tensor], own: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """What the clients of each seed (seeds, clients, ...) have after a round."""
    if run.learned:
        return learned(run, state, own)
    local = ("gain", "shift", "mean", "var") if run.local else ()
    names, counts = list(state), torch.full((CLIENTS,), float(EACH))
    parts = [nk.fedbn_average(*(state[name][seed] for name in names), counts, entries=names, local=local)
             for seed in range(len(state["out"]))]  # fmt: skip
    return {name: torch.stack(parts) for name, *parts in zip(names, *parts, strict=True)}


def learned(run: Run, state: dict[str, Tensor], own: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """The same with shares and a factor that the server learns on digits of its own."""
    from normkit.federated.fedlaw import learn

    def error(one: Any, batch: Any) -> Tensor:
        return F.cross_entropy(answers(run, dict(one), batch[0], False), batch[1])

    made: dict[str, list[Tensor]] = {name: [] for name in state}
    for seed, (x, y) in enumerate(zip(*own, strict=True)):
        clients = [{name: value[seed, client] for name, value in state.items()} for client in range(CLIENTS)]
        result = learn(clients, torch.full((CLIENTS,), float(EACH)), error, [(x, y)])
        for name in made:
            made[name].append(result.state[name].expand(CLIENTS, *result.state[name].shape))
    return {name: torch.stack(parts) for name, parts in made.items()}


def scores(run: Run, seeds: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Let all clients train and the server join them, and return how many digits are right, of a hundred."""
    x, y, asked, right, *own = (torch.stack(part) for part in zip(*(data(run, seed) for seed in seeds), strict=True))
    chance = torch.Generator().manual_seed(0)
    if run.filled:
        x, y = (torch.stack(part) for part in zip(*(filled(*both, chance) for both in zip(x, y, strict=True)),
                                                  strict=True))  # fmt: skip
    starts = [started(run, seed) for seed in seeds]
    state = {name: torch.stack([one[name].expand(CLIENTS, *one[name].shape) for one in starts]) for name in starts[0]}
    by = torch.tensor(rates).view(-1, 1, 1, 1)
    for _ in range(int(run.rounds * run.share)):
        state = {name: value.clone() for name, value in state.items()}
        free = [name for name in state if name not in ("mean", "var")]
        for _ in range(STEPS):
            rows = torch.randint(x.shape[2], (CLIENTS, BATCH), generator=chance).expand(len(seeds), -1, -1)
            batch = x.gather(2, rows[..., None].expand(-1, -1, -1, 64))
            with torch.enable_grad():
                leaves = {name: state[name].requires_grad_() for name in free}
                out = answers(run, state, batch, True)
                loss = F.cross_entropy(out.flatten(0, 2), y.gather(2, rows).flatten(), reduction="sum") / BATCH
                slopes = torch.autograd.grad(loss, list(leaves.values()))
            state |= {name: leaves[name].detach() - by * slope for name, slope in zip(free, slopes, strict=True)}
        state = joined(run, state, (own[0], own[1]))
    with torch.no_grad():
        found = answers(run, state, asked, False).argmax(-1)
    return (100 * (found == right).float().mean((1, 2))).tolist()


CONTEST = Contest(scores, (0.03, 0.1, 0.3))
SHARED = Run(norm="batchnorm")
OWN = SHARED._replace(local=True)
LINEAR = Run(hidden=False)
WHAT = (
    "Ten clients of 80 digits each, {}, 50 rounds of 10 steps of gradient descent at a variant's own best rate, and an "
    "average by a server. The accuracy is that on digits that nobody has, as each client sees them."
)
BLIND = "Many clients, large models, and rounds in which few clients take part."
SHIFTED_CLIENTS = Bed(
    "shifted-clients",
    WHAT.format("each with gains and shifts of its own, a network of one hidden layer of 32"),
    (
        CONTEST.known(
            "shifts",
            "Clients' shifts cost averaged batch norms 5 points or more.",
            SHARED,
            SHARED._replace(shifted=True),
            5.0,
        ),
    ),
    BLIND,
)
SKEWED_CLIENTS = Bed(
    "skewed-clients",
    WHAT.format("each with two classes or with uneven ones, a network of one hidden layer of 32 or a linear map"),
    (
        CONTEST.known(
            "two-classes",
            "Two classes a client cost a linear map that is averaged 2 points or more.",
            LINEAR,
            LINEAR._replace(split="two"),
            2.0,
        ),
    ),
    BLIND,
)
better, as_good = CONTEST.better, CONTEST.as_good
