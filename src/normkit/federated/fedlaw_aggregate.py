"""FedLAW's aggregation: shares of clients that sum to one, and a factor that shrinks their sum."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._logits import FUNCTIONS, PAPER, aggregate, weights
from normkit.federated._states import read
from normkit.ops.sums import in_type

NAME = "fedlaw-aggregate"


@method(
    NAME,
    paper=PAPER,
    shape="K C",
    over="K",
    inputs={"share_logit": "K", "shrink_logit": "1"},
    example={"entries": ("weight",)},
)
def fedlaw_aggregate(*states: Tensor, entries: Sequence[str], function: str = "exp") -> tuple[Tensor, ...]:
    """Sum the clients' states by shares, and shrink the sum; both are given by numbers that can be learned.

    For a server that has a little data of its own: a factor below 1 is weight decay by aggregation. Without such data
    clients are weighed by their sample counts.

        state = shrink sum_k share_k state_k
        exp:     share = softmax(a),          shrink = exp(s)
        square:  share_k = a_k² / sum_j a_j²,  shrink = s²

    Args:
        states: for each entry the clients', stacked (K, ...), then a (K,) and s, a single number.
        entries: the names, in order: parameters. Buffers stay the server's own.
        function: ``"exp"`` or ``"square"``.

    Returns one state, one tensor an entry. ``fedlaw`` learns a and s.

    Revisiting Weighted Aggregation in Federated Learning with Neural Networks (Li et al., 2023), arXiv 2302.10911.
    """
    check.choice(NAME, "function", function, FUNCTIONS)
    tensors, [share, shrink] = read(NAME, states, {"": entries}, ("share_logit", "shrink_logit"))
    check.shape(NAME, "states share_logit", share, (len(states[0]),))
    if shrink.numel() != 1:
        raise ValueError(f"{NAME}: states shrink_logit must be a single number, but its shape is {tuple(shrink.shape)}")
    pair = weights(share.double(), shrink.double().reshape(()), function)
    return tuple(in_type(value, like) for value, like in zip(aggregate(tensors[""], *pair), tensors[""], strict=True))
