"""Continuous flows: a velocity field, its solver on an equal grid, and the gradient by the adjoint.

The grid is the house's own: it compiles, exports and goes through torch's transforms. Steps that fit themselves to a
tolerance are torchdiffeq's.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.density._inputs import bind, linear
from normkit.kinds import Transform
from normkit.ops.derivatives import once_differentiable

METHODS = ("euler", "midpoint", "rk4")
ADAPTIVE = "dopri5"
MOST_STEPS = 1000  # of torchdiffeq, before it is said that a solve does not converge
State = tuple[Tensor, ...]
Slope = Callable[[Tensor, State], State]


class FieldFlow(Transform):
    """A flow along f(t, x) = W2 tanh(W1 [x, t] + b1) + b2, whose divergence is known exactly."""

    def __init__(self, dim: int, hidden: int, method: str, steps: int, methods: Sequence[str] = METHODS):
        super().__init__()
        self.dim, self.width = check.size(self, "dim", dim), check.size(self, "hidden", hidden)
        self.method = check.choice(self, "method", method, methods)
        self.steps = check.size(self, "steps", steps)
        self.hidden = nn.Linear(dim + 1, hidden)
        self.output = nn.Linear(hidden, dim)

    def field(self, t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the velocity at time ``t`` and places ``x`` (N, D), and its divergence (N,)."""
        inner = torch.tanh(linear(torch.cat([x, t.expand(len(x), 1)], 1), self.hidden))
        weight, back = self.hidden.weight.to(x.dtype)[:, :-1], self.output.weight.to(x.dtype)
        return linear(inner, self.output), (1 - inner.square()) @ (back.mT * weight).sum(1)


def adapt(owner: object, slope: Slope, state: State, start: Tensor, end: Tensor, tolerance: float) -> State:
    """Carry a state from one time to another by steps of torchdiffeq that fit themselves to a tolerance."""
    try:
        solver = importlib.import_module("torchdiffeq")
    except ImportError as error:
        raise ValueError(f"{check.whose(owner)}: method 'dopri5' needs torchdiffeq: pip install torchdiffeq") from error
    seen = start

    def watched(t: Tensor, state: State) -> State:
        nonlocal seen
        seen = t
        return slope(t, state)

    how = {"method": ADAPTIVE, "rtol": tolerance, "atol": tolerance, "options": {"max_num_steps": MOST_STEPS}}
    try:
        solution = solver.odeint(watched, state, torch.stack([start, end]), **how)
    except AssertionError as error:  # which is how it says that steps are too many or too small
        raise ValueError(
            f"{check.whose(owner)}: the ODE does not converge at time {seen.item():.6g} with a tolerance of "
            f"{tolerance:g}: {error}"
        ) from error
    return tuple(value[-1] for value in solution)


def integrate(slope: Slope, state: State, start: Tensor, end: Tensor, steps: int, method: str) -> State:
    """Carry a state from one time to another by equal steps."""
    h = (end - start) / steps
    for step in range(steps):
        state = STEPS[method](slope, state, start + step * h, h)
    return state


def _move(state: State, h: Tensor, *parts: tuple[float, State]) -> State:
    """The state, moved by h times a weighted sum of slopes."""
    return tuple(
        value + h * sum(weight * change[place] for weight, change in parts) for place, value in enumerate(state)
    )


def _euler(slope: Slope, state: State, t: Tensor, h: Tensor) -> State:
    return _move(state, h, (1.0, slope(t, state)))


def _midpoint(slope: Slope, state: State, t: Tensor, h: Tensor) -> State:
    return _move(state, h, (1.0, slope(t + h / 2, _move(state, h, (0.5, slope(t, state))))))


def _rk4(slope: Slope, state: State, t: Tensor, h: Tensor) -> State:
    """Kutta's 3/8 rule, which is what the common library calls rk4."""
    first = slope(t, state)
    second = slope(t + h / 3, _move(state, h, (1 / 3, first)))
    third = slope(t + 2 * h / 3, _move(state, h, (1.0, second), (-1 / 3, first)))
    fourth = slope(t + h, _move(state, h, (1.0, first), (-1.0, second), (1.0, third)))
    return _move(state, h, (1 / 8, first), (3 / 8, second), (3 / 8, third), (1 / 8, fourth))


STEPS = {"euler": _euler, "midpoint": _midpoint, "rk4": _rk4}


class Slopes(nn.Module):
    """The slope of a flow as a module, whose parameters may be others for a call."""

    def __init__(self, flow: nn.Module, slope: Slope):
        super().__init__()
        self.flow, self.slope = flow, slope

    def forward(self, t: Tensor, state: State) -> State:
        """Return the slope."""
        return self.slope(t, state)


class Adjoint(torch.autograd.Function):
    """A solve that keeps its end alone; its backward pass solves again, from the end to the start."""

    @staticmethod
    def forward(ctx, of: Slopes, times: tuple[Tensor, Tensor], how: tuple[int, str], x: Tensor, *learned: Tensor):
        """Return where ``x`` is carried, and the log-determinant."""
        end = integrate(of, (x, x.new_zeros(len(x))), *times, *how)
        ctx.of, ctx.times, ctx.how = of, times, how
        ctx.kept = dict(itertools.chain(of.named_parameters(), of.named_buffers()))
        ctx.names = [name for name, value in of.named_parameters() if value.requires_grad]
        ctx.save_for_backward(end[0], *learned)
        return end

    @staticmethod
    @once_differentiable("CNF: with adjoint=True there are no second derivatives; without it there are")
    def backward(ctx, saved: tuple[Tensor, ...], *sent: Tensor):
        """Return the gradients of the start and of what is learned."""
        z, *learned = saved
        slope = bind(ctx.of, {**ctx.kept, **dict(zip(ctx.names, learned, strict=True))})
        (start, end), back = ctx.times, _Backward(slope, sent[1], learned)
        state = (z, sent[0], *(torch.zeros_like(value) for value in learned))
        _, gradient, *grads = integrate(back, state, end, start, *ctx.how)
        return None, None, None, gradient, *grads


class _Backward:
    """The slope of place, of the gradient at it and of what is learned, together."""

    def __init__(self, slope: Slope, log_det: Tensor, learned: Sequence[Tensor]):
        self.slope, self.log_det, self.learned = slope, log_det, learned

    def __call__(self, t: Tensor, state: State) -> State:
        with torch.enable_grad():
            x = state[0].detach().requires_grad_()
            velocity, divergence = self.slope(t, (x, self.log_det))
            sources = [(velocity, state[1]), (divergence, self.log_det)]
            values, sent = zip(*((value, g) for value, g in sources if value.requires_grad), strict=True)
            leaves = (x, *self.learned)
            grads = torch.autograd.grad(values, leaves, sent, allow_unused=True, materialize_grads=True)
        return velocity.detach(), *(-value for value in grads)
