"""APFL's step: a shared and a personal model trained together, and their mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.federated._states import read
from normkit.federated.apfl_alpha import PAPER, moved
from normkit.kinds import beside

NAME = "apfl-step"
MIXINGS = ("output", "parameter")
DECAY = 0.02
State = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Forward = Callable[[State, Tensor], Tensor]


class Round(NamedTuple):
    """The shared and the personal parameters after a round, and their mixture."""

    shared: State
    personal: State
    alpha: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="F I",
    over="",
    inputs={
        "shared_b1": "F",
        "shared_w2": "C F",
        "shared_b2": "C",
        "personal_w1": "F I",
        "personal_b1": "F",
        "personal_w2": "C F",
        "personal_b2": "C",
        "x": "S N I",
        "y": "S N : index C",
    },
    example={"entries": ("w1", "b1", "w2", "b2"), "lr": 0.1},
    exempt={"gradcheck": "a step carries no gradient"},
)
def apfl_step(
    *states: Tensor,
    entries: Sequence[str],
    lr: float,
    alpha: float = 0.5,
    adapt: bool = False,
    mixing: str = "output",
) -> tuple[Tensor, ...]:
    """Train a shared and a personal model for a round, the personal one on the mixture of both.

    For clients whose data differ, each with a model of its own beside the shared one; ``apfl-alpha`` moves the share of
    each. Where clients are alike one model is enough.

    As :func:`train` beside it, for one hidden layer: logits w2 tanh(w1 x + b1) + b2, and cross-entropy.

    Args:
        states: the entries of the shared model, of the personal one, then the data: x (B, N, D) and classes y (B, N),
            B batches.
        entries: the names of w1, b1, w2, b2.
        lr: the step of both models and of alpha.
        alpha: the share of the personal model at the start.
        adapt: move alpha too.
        mixing: ``"output"`` as the authors' code, or ``"parameter"`` as the paper.

    Returns shared and personal state, one tensor an entry, and alpha.

    Adaptive Personalized Federated Learning (Deng et al., 2020), arXiv 2003.13461.
    """
    if len(check.names(NAME, "entries", entries)) != 4:
        raise ValueError(f"{NAME}: entries must name w1, b1, w2, b2, not {list(entries)}; train takes any model")
    tensors, [x, y] = read(NAME, states, {"shared": entries, "personal": entries}, ("x", "y"), clients=False)
    shared, personal = (
        {name: value.double() for name, value in zip(entries, tensors[role], strict=True)} for role in tensors
    )
    w1, b1, w2, b2 = tensors["shared"]
    check.shape(NAME, f"states shared:{entries[0]}", w1, (None, None))
    check.shape(NAME, f"states shared:{entries[1]}", b1, w1.shape[:1])
    check.shape(NAME, f"states shared:{entries[2]}", w2, (None, len(w1)))
    check.shape(NAME, f"states shared:{entries[3]}", b2, w2.shape[:1])
    check.shape(NAME, "states x", x, (None, None, w1.shape[1]))
    check.index(NAME, "states y", y, x.shape[:2], len(b2), x)

    def forward(state: State, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = state.values()
        return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)

    batches = list(zip(x.double(), y, strict=True))
    done = train(forward, shared, personal, alpha, batches, lr=lr, adapt=adapt, mixing=mixing)
    kept = [*done.shared.values(), *done.personal.values()]
    own = [*tensors["shared"], *tensors["personal"]]
    return (*(a.to(b.dtype) for a, b in zip(kept, own, strict=True)), done.alpha.to(own[0].dtype))


@beside(apfl_step)
def train(
    forward: Forward,
    shared: Mapping[str, Tensor],
    personal: Mapping[str, Tensor],
    alpha: float | Tensor,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    lr: float,
    adapt: bool = False,
    mixing: str = "output",
    loss: Loss = F.cross_entropy,
) -> Round:
    """Train both models of a client over batches (x, y), each a step of plain gradient descent.

    ``forward(parameters, x)`` runs the model, such as ``partial(torch.func.functional_call, model)``. With outputs
    mixed, a batch first moves the shared model, then the personal one by the loss of alpha personal + (1 - alpha)
    shared; alpha moves on the first batch, by ``apfl-alpha``. With parameters mixed, all three move at once in every
    batch, the personal one and alpha by the gradient at m = alpha v + (1 - alpha) w. Nothing handed in is changed.
    """
    lr = check.number(NAME, "lr", lr, 0.0)
    step = _by_output if check.choice(NAME, "mixing", mixing, MIXINGS) == "output" else _by_parameter
    share = check.number(NAME, "alpha", float(alpha), 0.0, 1.0)
    w, v = ({name: value.detach().clone() for name, value in state.items()} for state in (shared, personal))
    now = Round(w, v, torch.tensor(share, dtype=torch.float64, device="cpu"))
    for number, (x, y) in enumerate(batches):
        move = adapt and (mixing == "parameter" or number == 0)
        now = step(forward, loss, now, x, y, lr, move)
    return now


def _by_output(forward: Forward, loss: Loss, now: Round, x: Tensor, y: Tensor, lr: float, move: bool) -> Round:
    w, v, alpha = now
    w = _step(w, _gradients(lambda s: loss(forward(s, x), y), w)[0], lr)

    def mixed(v: State, w: State) -> Tensor:
        own = forward(v, x)
        share = alpha.to(own.dtype)
        return loss(share * own + (1 - share) * forward(w, x), y)

    gv, gw = _gradients(mixed, v, w)
    v = _step(v, gv, lr)
    if move:
        alpha = moved([list(s.values()) for s in (v, w, gv, gw)], alpha, lr, DECAY)
    return Round(w, v, alpha)


def _by_parameter(forward: Forward, loss: Loss, now: Round, x: Tensor, y: Tensor, lr: float, move: bool) -> Round:
    w, v, alpha = now
    m = {name: torch.lerp(w[name], v[name], alpha.to(v[name].dtype)) for name in v}
    [gw] = _gradients(lambda s: loss(forward(s, x), y), w)
    [gm] = _gradients(lambda s: loss(forward(s, x), y), m)
    slope = sum(((v[name].double() - w[name].double()) * gm[name].double()).sum() for name in v)
    after = torch.clamp(alpha - lr * slope, 0, 1) if move else alpha
    return Round(_step(w, gw, lr), _step(v, gm, lr * float(alpha)), after)


def _gradients(function: Callable[..., Tensor], *states: State) -> list[State]:
    """Gradients of a number with respect to each entry of each state."""
    with torch.enable_grad():
        leaves = [{name: value.detach().requires_grad_() for name, value in state.items()} for state in states]
        flat = [value for state in leaves for value in state.values()]
        grads = iter(torch.autograd.grad(function(*leaves), flat, materialize_grads=True))
    return [{name: next(grads) for name in state} for state in leaves]


def _step(state: State, gradient: State, lr: float) -> State:
    return {name: value - lr * gradient[name] for name, value in state.items()}
