"""The causal scan behind the linear cores: a state of keys by values, carried from token to token, in linear time.

    S_t = (a_tᵀ b_t) * S_{t-1} + k_tᵀ v_t,    y_t = q_t S_t,    S before the first token is 0

``a_t`` decays the features of the keys, ``b_t`` those of the values; both lie in [0, 1] and are given as logarithms.
The tokens are cut into chunks of 64. Inside a chunk the scan is a few small masked products, from chunk to chunk it is
the recurrence itself, so that nothing of size T x T is made and no state of a single token is kept. Every exponent is a
sum of logarithms between the key and the query, never a difference of such sums: it is at most 0 and loses no digits.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64


def scan(q: Tensor, k: Tensor, v: Tensor, slope: Tensor | None = None) -> Tensor:
    """Sum the values of each query's past: all alike, or decayed by exp(-slope) a token.

    q and k are (..., T, K), v is (..., T, V), ``slope`` broadcasts to (..., 1, 1).

    >>> ones = torch.ones(1, 3, 1)
    >>> scan(ones, ones, ones).flatten()
    tensor([1., 2., 3.])
    """
    length, chunk = q.shape[-2], _chunk(q.shape[-2])
    q, k, v = (_cut(x, chunk) for x in (q, k, v))
    if slope is None:
        before = _states(k.mT @ v)
        return _join((q @ k.mT).tril() @ v + q @ before, length)
    slope = slope.unsqueeze(-1)
    steps = torch.arange(chunk, device=q.device, dtype=q.dtype).unsqueeze(-1)
    inside = (-slope * (steps - steps.mT).clamp(min=0)).exp().tril()
    before = _states((k * (slope * (steps + 1 - chunk)).exp()).mT @ v, (-slope * chunk).exp())
    return _join((q @ k.mT * inside) @ v + (q * (-slope * (steps + 1)).exp()) @ before, length)


def gated_scan(
    q: Tensor, k: Tensor, v: Tensor, key_gate: Tensor | None = None, value_gate: Tensor | None = None
) -> Tensor:
    """Sum the values of each query's past, each feature decayed by its own gates since.

    ``key_gate`` (..., T, K) and ``value_gate`` (..., T, V) are the logarithms of a and b.

    >>> ones = torch.ones(1, 3, 1)
    >>> gated_scan(ones, ones, ones, value_gate=torch.full((1, 3, 1), 0.5).log()).flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    length, chunk = q.shape[-2], _chunk(q.shape[-2])
    q, k, v = (_cut(x, chunk) for x in (q, k, v))
    key_gate, value_gate = (None if gate is None else _cut(gate, chunk) for gate in (key_gate, value_gate))
    y = (q * k).sum(-1, keepdim=True) * v
    half = 1
    while half < chunk:
        y = y + _second_from_first_half(half, q, k, v, key_gate, value_gate)
        half *= 2
    update = _decayed(k, _until_end(key_gate)).mT @ _decayed(v, _until_end(value_gate))
    before = _states(update, _over(key_gate, value_gate))
    return _join(y + _decayed(_decayed(q, _from_start(key_gate)) @ before, _from_start(value_gate)), length)


def advance(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, key_decay: Tensor | None = None, value_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Take one token, q, k (..., 1, K) and v (..., 1, V): return its result and the state (..., K, V) after it.

    The decays are a (..., 1, K or 1) and b (..., 1, V) themselves.
    """
    if key_decay is not None:
        state = state * key_decay.mT
    if value_decay is not None:
        state = state * value_decay
    state = state + k.mT * v
    return q @ state, state


def _second_from_first_half(
    half: int, q: Tensor, k: Tensor, v: Tensor, key_gate: Tensor | None, value_gate: Tensor | None
) -> Tensor:
    """What the second half of every stretch of 2 * half tokens takes from the first; decays meet between the halves."""
    first_key_gate, second_key_gate = _halves(key_gate, half)
    first_value_gate, second_value_gate = _halves(value_gate, half)
    queries = _decayed(_split(q, half)[1], _from_start(second_key_gate))
    keys = _decayed(_split(k, half)[0], _until_end(first_key_gate))
    values = _decayed(_split(v, half)[0], _until_end(first_value_gate))
    taken = _decayed(queries @ keys.mT @ values, _from_start(second_value_gate))
    return torch.stack([torch.zeros_like(taken), taken], -3).flatten(-4, -2)


def _split(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    stretches = x.unflatten(-2, (x.shape[-2] // (2 * half), 2, half))
    return stretches.select(-3, 0), stretches.select(-3, 1)


def _halves(gate: Tensor | None, half: int) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if gate is None else _split(gate, half)


def _from_start(gate: Tensor | None) -> Tensor | None:
    """The decay from before the first token up to and with each token."""
    return None if gate is None else gate.cumsum(-2)


def _until_end(gate: Tensor | None) -> Tensor | None:
    """The decay after each token until the last."""
    return None if gate is None else F.pad(gate[..., 1:, :], (0, 0, 0, 1)).flip(-2).cumsum(-2).flip(-2)


def _over(key_gate: Tensor | None, value_gate: Tensor | None) -> Tensor:
    """The decay of the whole state over each chunk."""
    of_keys = 0 if key_gate is None else key_gate.sum(-2).unsqueeze(-1)
    of_values = 0 if value_gate is None else value_gate.sum(-2).unsqueeze(-2)
    return torch.as_tensor(of_keys + of_values).exp()


def _decayed(x: Tensor, gate: Tensor | None) -> Tensor:
    return x if gate is None else x * gate.exp()


def _states(update: Tensor, keep: Tensor | None = None) -> Tensor:
    """The state before each chunk, from what each adds to it, (..., chunks, K, V), and what each keeps of it."""
    if keep is None:
        return F.pad(update[..., :-1, :, :].cumsum(-3), (0, 0, 0, 0, 1, 0))
    updates = update.unbind(-3)
    keeps = keep.expand(*keep.shape[:-3], len(updates), *keep.shape[-2:]).unbind(-3)
    states = [torch.zeros_like(updates[0])]
    for add, rest in zip(updates[:-1], keeps, strict=False):
        states.append(states[-1] * rest + add)
    return torch.stack(states, -3)


def _chunk(length: int) -> int:
    """The chunk for so many tokens: a power of two, at most 64."""
    chunk = CHUNK
    while chunk > 1 and chunk // 2 >= length:
        chunk //= 2
    return chunk


def _cut(x: Tensor, chunk: int) -> Tensor:
    """Fill the tokens up with zeros and cut them into chunks, at least one."""
    chunks = max(1, (x.shape[-2] + chunk - 1) // chunk)
    return F.pad(x, (0, 0, 0, chunks * chunk - x.shape[-2])).unflatten(-2, (chunks, chunk))


def _join(y: Tensor, length: int) -> Tensor:
    return y.flatten(-3, -2)[..., :length, :]
