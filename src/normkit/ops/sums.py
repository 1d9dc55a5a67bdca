"""Clients' states, gone through once: their sum by shares, and how far each is from what was sent.

>>> import torch
>>> states = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0])]
>>> weigh(states, [0.5, 0.5], torch.zeros(2), measured=True)
(tensor([2., 2.]), tensor([ 5., 13.], dtype=torch.float64))
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import kernels
from normkit.kernels import special
from normkit.ops import eager

__all__ = ["BLOCK", "in_type", "weigh"]

BLOCK = 2**16  # numbers that the formula sums at once: a processor's cache holds them


def weigh(
    states: Sequence[Tensor], shares: Sequence[float], sent: Tensor, measured: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the sum of shares times states, in the type of what was sent, and the squared distances from it (K,).

    Sums are in float64, state after state as they stand, and without a gradient; whole numbers are rounded. All have
    the shape of what was sent. Distances are taken where ``measured`` asks for them.
    """
    states, sent = [state.detach() for state in states], sent.detach()
    if eager.runs_formula("weighted", _against(states, sent), sent, *states):
        return _formula(states, shares, sent, measured)
    packed = [state.contiguous().resolve_neg() for state in states]
    before = eager.pack(sent) if measured else None
    places = [[state.data_ptr(), kernels.bytes_of("states", "a state", state)] for state in packed]
    table, given = sent.new_tensor(places, dtype=torch.int64), sent.new_tensor(shares, dtype=torch.float64)
    total = sent.new_empty(sent.shape)
    squares = sent.new_empty(len(packed), dtype=torch.float64) if measured else None
    plan = special.STATES.pack(eager.code(sent), len(packed))
    special.require().states(plan, sent.numel(), table, given, before, total, squares)
    return total, squares


def in_type(value: Tensor, like: Tensor) -> Tensor:
    """Cast to the type of ``like``, rounded where that holds whole numbers."""
    return (value if like.is_floating_point() or like.is_complex() else value.round()).to(like.dtype)


def _against(states: Sequence[Tensor], sent: Tensor) -> str | None:
    """What is against the kernel of states, beside what is against all."""
    if eager.on_gpu(sent):
        return "there is no kernel of states on GPUs"
    if sent.dtype not in (torch.float32, torch.float64) or any(state.dtype != sent.dtype for state in states):
        return "the kernel of states takes float32 or float64, the same for all"
    if any(state.shape != sent.shape for state in states):
        return "the kernel takes states of one shape"
    return special.absent()


def _formula(
    states: Sequence[Tensor], shares: Sequence[float], sent: Tensor, measured: bool
) -> tuple[Tensor, Tensor | None]:
    flat, before, out = [state.reshape(-1) for state in states], sent.reshape(-1), torch.empty_like(sent).reshape(-1)
    squares = torch.zeros(len(flat), dtype=torch.float64, device=out.device) if measured else None
    block = torch.empty(min(BLOCK, len(out)), dtype=torch.float64, device=out.device)
    for at in range(0, len(out), BLOCK):
        part = block[: len(out) - at].zero_()
        for k, state in enumerate(flat):
            given = state[at : at + BLOCK]
            part.add_(given, alpha=shares[k])
            if squares is not None:
                squares[k] += (given.double() - before[at : at + BLOCK].double()).square().sum()
        out[at : at + BLOCK] = in_type(part, out)
    return out.reshape(sent.shape), squares
