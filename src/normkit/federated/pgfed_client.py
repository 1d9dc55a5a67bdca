"""PGFed's client: its own risk and, to first order, that of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.federated._states import read
from normkit.kinds import beside

NAME = "pgfed-client"
PAPER = "PGFed: Personalize Each Client's Global Objective for Federated Learning (Luo et al., 2023), arXiv 2212.01448"
State = Mapping[str, Tensor]


class Sent(NamedTuple):
    """The personal state, the weights of the others, and what goes to the server: gradient and risk."""

    state: dict[str, Tensor]
    alpha: Tensor
    gradient: dict[str, Tensor]
    risk: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="C I",
    over="",
    inputs={
        "bias": "C",
        "auxiliary_weight": "C I",
        "auxiliary_bias": "C",
        "mean_gradient_weight": "C I",
        "mean_gradient_bias": "C",
        "risks": "K",
        "alpha": "K : unit",
        "x": "S N I",
        "y": "S N : index C",
    },
    example={"entries": ("weight", "bias"), "lr": 0.1, "alpha_lr": 0.01},
    exempt={"gradcheck": "a round of training carries no gradient"},
)
def pgfed_client(
    *states: Tensor,
    entries: Sequence[str],
    lr: float,
    alpha_lr: float,
    momentum: float = 0.9,
    epochs: int = 1,
) -> tuple[Tensor, ...]:
    """Train a personal model on its own risk and on what the server says of the others'.

    For the clients of ``pgfed-server``, whose data differ: each trains a model of its own and learns from the others'
    losses without seeing their data. Where one model fits all, a plain average is enough.

    As :func:`train` beside it, for a linear map: entries weight (C, D) and bias (C,), and cross-entropy.

    Args:
        states: the entries, those of the auxiliary and of the mean gradient, then risks (M,) and alpha (M,) of the
            clients of the last round, and the data: x (B, N, D) and classes y (B, N), B batches.
        entries: the names of weight and bias.
        lr, momentum: of the gradient descent.
        alpha_lr: the step of alpha.
        epochs: passes over the batches.

    Returns the state, alpha, the gradient, one tensor an entry, and the risk.

    PGFed (Luo et al., 2023), arXiv 2212.01448.
    """
    if len(check.names(NAME, "entries", entries)) != 2:
        raise ValueError(f"{NAME}: entries must name a weight and a bias, not {list(entries)}; train takes any model")
    roles = ("", "auxiliary", "mean_gradient")
    tensors, [risks, alpha, x, y] = read(
        NAME, states, dict.fromkeys(roles, entries), ("risks", "alpha", "x", "y"), clients=False
    )
    own = tensors[""]
    check.shape(NAME, f"states {entries[0]}", own[0], (None, None))
    check.shape(NAME, f"states {entries[1]}", own[1], own[0].shape[:1])
    check.shape(NAME, "states risks", risks, (None,))
    check.shape(NAME, "states alpha", alpha, risks.shape)
    check.shape(NAME, "states x", x, (None, None, own[0].shape[-1]))
    check.index(NAME, "states y", y, x.shape[:2], len(own[0]), x)
    state, auxiliary, mean = ({n: v.double() for n, v in zip(entries, tensors[r], strict=True)} for r in roles)
    done = train(
        lambda state, x: F.linear(x, *(state[name] for name in entries)),
        state,
        list(zip(x.double(), y, strict=True)),
        auxiliary,
        mean,
        risks.double(),
        alpha.double(),
        lr=lr,
        alpha_lr=alpha_lr,
        momentum=momentum,
        epochs=epochs,
    )
    after = (done.state[name].to(value.dtype) for name, value in zip(entries, own, strict=True))
    gradient = (done.gradient[name].to(value.dtype) for name, value in zip(entries, own, strict=True))
    return (*after, done.alpha.to(alpha.dtype), *gradient, done.risk.to(own[0].dtype))


@beside(pgfed_client)
def train(
    forward: Callable[[dict[str, Tensor], Tensor], Tensor],
    state: State,
    batches: Sequence[tuple[Tensor, Tensor]],
    auxiliary: State | None = None,
    mean_gradient: State | None = None,
    risks: Tensor | None = None,
    alpha: Tensor | None = None,
    *,
    lr: float,
    alpha_lr: float,
    momentum: float = 0.9,
    epochs: int = 1,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Sent:
    """Train any model for a round; ``forward(parameters, x)`` runs it, ``loss`` is the mean over a batch.

    Each batch, with theta from before it: g is the gradient plus the auxiliary,

        alpha_j <- max(0, alpha_j - alpha_lr (risks_j + <theta, mean_gradient>)),    theta <- momentum SGD with g

    Then, theta fixed, ``gradient`` is the mean of the batches' gradients, and ``risk`` the mean loss of all samples
    less <gradient, theta>. Without what the server sends, in the first round, it is plain training. Nothing given is
    changed.
    """
    if not batches or not all(len(y) for _, y in batches):
        raise ValueError(f"{NAME}: batches must not be empty, nor any of them")
    for name, value in (("lr", lr), ("alpha_lr", alpha_lr), ("momentum", momentum)):
        check.number(NAME, name, value, 0.0)
    others = {"auxiliary": auxiliary, "mean_gradient": mean_gradient, "risks": risks, "alpha": alpha}
    absent = [name for name, value in others.items() if value is None]
    if 0 < len(absent) < len(others):
        raise ValueError(f"{NAME}: {', '.join(others)} must be given together or not at all, but {absent} are None")
    theta = {name: value.detach().clone() for name, value in state.items()}
    alpha = torch.zeros(0) if alpha is None else alpha.detach()
    moving = {name: torch.zeros_like(value) for name, value in theta.items()}
    for _ in range(check.size(NAME, "epochs", epochs, least=0)):
        for x, y in batches:
            slope, _ = _slope(forward, loss, theta, x, y)
            if auxiliary is not None and mean_gradient is not None and risks is not None:
                slope = {name: value + auxiliary[name].detach() for name, value in slope.items()}
                alpha = (alpha - alpha_lr * (risks.detach() + _product(theta, mean_gradient))).clamp(min=0)
            moving = {name: momentum * moving[name] + slope[name] for name in theta}
            theta = {name: value - lr * moving[name] for name, value in theta.items()}
    gradient, risk = _gradient_and_risk(forward, loss, theta, batches)
    return Sent(theta, alpha, gradient, risk)


def _gradient_and_risk(forward, loss, theta: dict[str, Tensor], batches) -> tuple[dict[str, Tensor], Tensor]:
    """The gradient and the risk at the end of a round."""
    slopes = [(*_slope(forward, loss, theta, x, y), len(y)) for x, y in batches]
    gradient = {name: torch.stack([slope[name] for slope, _, _ in slopes]).mean(0) for name in theta}
    risk = torch.stack([value * number for _, value, number in slopes]).sum() / sum(number for _, _, number in slopes)
    return gradient, risk - _product(gradient, theta)


def _slope(forward, loss, theta: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Gradient and loss of a batch."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in theta.items()}
        value = loss(forward(leaves, x), y)
        grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True)), value.detach()


def _product(a: State, b: State) -> Tensor:
    return torch.stack([(a[name].detach() * b[name].detach()).sum() for name in a]).sum()
