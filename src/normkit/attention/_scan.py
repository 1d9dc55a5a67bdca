"""The causal scan behind the linear cores: a state of keys by values, carried from token to token, in linear time.

    S_t = (a_tᵀ b_t) * S_{t-1} + k_tᵀ v_t,    y_t = q_t S_t,    S before the first token is 0

``a_t`` decays the features of the keys, ``b_t`` those of the values; both lie in [0, 1] and are given as logarithms.
A sequence may be cut anywhere, and gone on with from the state of its first part. The tokens are cut into chunks of 64.
Inside a chunk the scan is a few small masked products, from chunk to chunk it is the recurrence itself, so that nothing
of size T x T is made and no state of a single token is kept. Every exponent is a sum of logarithms between the key and
the query, never a difference of such sums: it is at most 0 and loses no digits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.attention._window import unknown

CHUNK = 64
ROUNDS = 20  # of doubling, where the number of chunks is not known: enough for 2^20 of them
SMALL = 2  # tokens of which a product of matrices costs more than it computes
CLOSED = -1e30  # stands for the logarithm of 0: what has passed such a gate is gone in every type
Inputs = tuple[Tensor | None, ...]


def scan(
    q: Tensor, k: Tensor, v: Tensor, slope: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum the values of each query's past, all alike or decayed by exp(-slope) a token; return that and the last S.

    q and k are (..., T, K), v is (..., T, V), ``slope`` broadcasts to (..., 1, 1), ``state`` is S before the first
    token, (..., K, V), 0 by default.

    >>> ones = torch.ones(1, 3, 1)
    >>> scan(ones, ones, ones)[0].flatten()
    tensor([1., 2., 3.])
    """
    if q.shape[-2] == 1:
        return _advance(q, k, v, None if slope is None else (-slope).exp(), None, state)
    return _in_parts(_scan, (q, k, v), slope, state)


def gated_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_gate: Tensor | None = None,
    value_gate: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum the values of each query's past, each feature decayed by its own gates since; return that and the last S.

    ``key_gate`` (..., T, K) and ``value_gate`` (..., T, V) are the logarithms of a and b; ``state`` as in :func:`scan`.

    >>> ones = torch.ones(1, 3, 1)
    >>> gated_scan(ones, ones, ones, value_gate=torch.full((1, 3, 1), 0.5).log())[0].flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    if q.shape[-2] == 1:
        key_decay, value_decay = (None if gate is None else gate.exp() for gate in (key_gate, value_gate))
        return _advance(q, k, v, key_decay, value_decay, state)
    return _in_parts(_gated_scan, (q, k, v, key_gate, value_gate), None, state)


def _advance(
    q: Tensor, k: Tensor, v: Tensor, key_decay: Tensor | None, value_decay: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Take one token, q, k (..., 1, K) and v (..., 1, V), as the recurrence is written."""
    add = k.mT * v
    state = torch.zeros_like(add) if state is None else state
    state = state if key_decay is None else state * key_decay.mT
    state = state if value_decay is None else state * value_decay
    state = state + add
    return q @ state, state


def _in_parts(run: Callable, inputs: Inputs, slope: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run all whole chunks, then what is left over as one chunk: the state must end with the last token."""
    length = inputs[0].shape[-2]  # type: ignore[union-attr]
    if unknown(length):
        return _of_any_length(run, inputs, slope, state, length)
    whole = length - length % CHUNK
    if not 0 < whole < length:
        return run(*(x if x is None else _cut(x) for x in inputs), slope, state)
    first, state = _in_parts(run, _part(inputs, slice(whole)), slope, state)
    last, state = _in_parts(run, _part(inputs, slice(whole, None)), slope, state)
    return torch.cat([first, last], -2), state


def _of_any_length(
    run: Callable, inputs: Inputs, slope: Tensor | None, state: Tensor | None, length: int
) -> tuple[Tensor, Tensor]:
    """Run on chunks that are filled up by what adds nothing and decays nothing, with no branch on the length."""
    chunks = length // CHUNK + 2  # one would be a case of its own
    filled = [x if x is None else F.pad(x, (0, 0, 0, chunks * CHUNK - length)) for x in inputs]
    q, *others = [x if x is None else x.unfold(-2, CHUNK, CHUNK).mT for x in filled]
    index = torch.arange(chunks, device=q.device)  # type: ignore[union-attr]
    y, state = run(q, *others, slope, state, (length - CHUNK * index).clamp(0, CHUNK).view(-1, 1, 1))
    return y.index_select(-2, torch.arange(length, device=y.device)), state


def _part(inputs: Inputs, tokens: slice) -> Inputs:
    return tuple(x if x is None else x[..., tokens, :] for x in inputs)


def _cut(x: Tensor) -> Tensor:
    """Cut whole chunks, or one short one: (..., chunks, chunk, features)."""
    chunks = max(1, x.shape[-2] // CHUNK)
    return x.unflatten(-2, (chunks, x.shape[-2] // chunks))


def _scan(
    q: Tensor, k: Tensor, v: Tensor, slope: Tensor | None, state: Tensor | None, tokens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run on chunks, of ``tokens`` (chunks, 1, 1) each where they are filled up."""
    states = _states if tokens is None else _states_by_doubling
    if slope is None:
        before, after = states(k.mT @ v, None, state)
        return ((q @ k.mT).tril() @ v + q @ before).flatten(-3, -2), after
    chunk, slope = q.shape[-2], slope.unsqueeze(-1)
    steps = torch.arange(chunk, device=q.device, dtype=q.dtype).unsqueeze(-1)
    inside = (-slope * (steps - steps.mT).clamp(min=0)).exp().tril()
    count = chunk if tokens is None else tokens.to(q.dtype)
    update = (k * (slope * (steps + 1 - count).clamp(max=0)).exp()).mT @ v
    before, after = states(update, (-slope * count).exp(), state)
    past = (q * (-slope * (steps + 1)).exp()) @ before
    return ((q @ k.mT * inside) @ v + past).flatten(-3, -2), after


def _gated_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_gate: Tensor | None,
    value_gate: Tensor | None,
    slope: None,
    state: Tensor | None,
    tokens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run on chunks, whose tokens are filled up to a power of two that stretches can be halved by."""
    length = int(q.shape[-2])  # torch.jit.trace has tensors for sizes
    fill = (0, 0, 0, (1 << max(length - 1, 0).bit_length()) - length)
    if fill[-1]:
        q, k, v = (F.pad(x, fill) for x in (q, k, v))
        key_gate, value_gate = (gate if gate is None else F.pad(gate, fill) for gate in (key_gate, value_gate))
    # finite, since gates are summed by matrices of ones and zeros
    key_gate, value_gate = (gate if gate is None else gate.clamp(min=CLOSED) for gate in (key_gate, value_gate))
    update = _decay(k, _until_end(key_gate)).mT @ _decay(v, _until_end(value_gate))
    states = _states if tokens is None else _states_by_doubling
    before, after = states(update, _over(key_gate, value_gate), state)
    y = _decay(_decay(q, _from_start(key_gate)) @ before, _from_start(value_gate))
    y = (y + (q * k).sum(-1, keepdim=True) * v).flatten(-3, -2)
    half = 1
    while half < length:
        y = y + _second_from_first_half(half, q, k, v, key_gate, value_gate)
        half *= 2
    return y[..., :length, :] if fill[-1] else y, after


def _second_from_first_half(
    half: int, q: Tensor, k: Tensor, v: Tensor, key_gate: Tensor | None, value_gate: Tensor | None
) -> Tensor:
    """What the second half of every stretch of 2 * half tokens takes from the first; decays meet between the halves."""
    first_key_gate, second_key_gate = _halves(key_gate, half)
    first_value_gate, second_value_gate = _halves(value_gate, half)
    queries = _decay(_split(q, half)[1], _from_start(second_key_gate))
    keys = _decay(_split(k, half)[0], _until_end(first_key_gate))
    values = _decay(_split(v, half)[0], _until_end(first_value_gate))
    sums = _decay(_weigh(queries, keys, values), _from_start(second_value_gate))
    return torch.stack([torch.zeros_like(sums), sums], -3).flatten(-4, -2)


def _weigh(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The values of as many keys as queries, weighted by their products."""
    if keys.shape[-2] > SMALL:
        return queries @ keys.mT @ values
    pairs = zip(keys.split(1, -2), values.split(1, -2), strict=True)
    products = [(queries * key).sum(-1, keepdim=True) * value for key, value in pairs]
    return products[0] if len(products) == 1 else products[0] + products[1]


def _split(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    stretches = x.unflatten(-2, (x.shape[-2] // (2 * half), 2, half)).flatten(-5, -4)  # of all chunks
    first, second = stretches.unbind(-3)
    return first, second


def _halves(gate: Tensor | None, half: int) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if gate is None else _split(gate, half)


def _from_start(gate: Tensor | None) -> Tensor | None:
    """The decay from before the first token up to and with each token."""
    if gate is None or gate.shape[-2] <= SMALL:
        return None if gate is None else gate.cumsum(-2)
    return gate.new_ones(gate.shape[-2], gate.shape[-2]).tril() @ gate


def _until_end(gate: Tensor | None) -> Tensor | None:
    """The decay after each token until the last."""
    if gate is None or gate.shape[-2] <= SMALL:
        return None if gate is None else F.pad(gate[..., 1:, :], (0, 0, 0, 1))
    return gate.new_ones(gate.shape[-2], gate.shape[-2]).triu(1) @ gate


def _over(key_gate: Tensor | None, value_gate: Tensor | None) -> Tensor | None:
    """The decay of the whole state over each chunk."""
    of_keys = None if key_gate is None else key_gate.sum(-2).unsqueeze(-1)
    of_values = None if value_gate is None else value_gate.sum(-2).unsqueeze(-2)
    gates = [gate for gate in (of_keys, of_values) if gate is not None]
    return sum(gates[1:], start=gates[0]).exp() if gates else None


def _decay(x: Tensor, gate: Tensor | None) -> Tensor:
    return x if gate is None else x * gate.exp()


def _states(update: Tensor, keep: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The state before each chunk, from what each adds to it, (..., chunks, K, V), and what each keeps of it; and the
    state after the last.
    """
    updates = update.unbind(-3)
    keeps = () if keep is None else keep.expand(*keep.shape[:-3], len(updates), *keep.shape[-2:]).unbind(-3)
    states = [torch.zeros_like(updates[0]) if state is None else state]
    for index, add in enumerate(updates):
        states.append(add + (states[-1] * keeps[index] if keeps else states[-1]))
    return torch.stack(states[:-1], -3), states[-1]


def _states_by_doubling(update: Tensor, keep: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same without a loop over the chunks: each round adds what the stretch before has left, as long as its own."""
    first = torch.zeros_like(update[..., :1, :, :]) if state is None else state.unsqueeze(-3)
    sums = torch.cat([first, update], -3)
    at = torch.arange(sums.shape[-3], device=sums.device)
    kept = sums.new_ones(1, 1, 1) if keep is None else keep
    kept = F.pad(kept.expand(*kept.shape[:-3], update.shape[-3], *kept.shape[-2:]), (0, 0, 0, 0, 1, 0), value=1.0)
    for stretch in (1 << power for power in range(ROUNDS)):
        before = (at - stretch).clamp(min=0)
        left = kept * sums.index_select(-3, before)
        sums = sums + torch.where((at >= stretch).view(-1, 1, 1), left, 0)
        kept = kept * kept.index_select(-3, before)
    return sums[..., :-1, :, :], sums[..., -1, :, :]
