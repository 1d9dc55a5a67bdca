"""What the transformer layer is said to be: the one of the paper."""

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized

DIM = 8


def apart(seed, placement="post-norm"):
    """How far it is from torch's encoder layer with the same weights."""
    own = randomized(nk.TransformerLayer(
        placement=placement, dim=DIM, heads=2, hidden=12, causal=False, activation="relu", bias=True
    ), 0.2)  # fmt: skip
    other = nn.TransformerEncoderLayer(DIM, 2, 12, dropout=0.0, batch_first=True).double()
    attention, feedforward = own.attention, own.feedforward
    parts = [attention.query, attention.key, attention.value]
    state = {f"self_attn.in_proj_{kind}": [getattr(part, kind) for part in parts] for kind in ("weight", "bias")}
    state = {name: torch.cat(values) for name, values in state.items()}
    for name, part in {
        "self_attn.out_proj": attention.output,
        "linear1": feedforward.up,
        "linear2": feedforward.down,
        "norm1": own.attention_norm,
        "norm2": own.feedforward_norm,
    }.items():
        state |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
    other.load_state_dict(state)
    x = randn(3, 5, DIM)
    return gap(own(x), other(x))


def pre_norm(seed):
    """The same with the norms before the sublayers."""
    return apart(seed, "pre-norm")


CLAIMS = [
    Identity(
        "is-torchs",
        says="Post-norm with the weights of torch's encoder layer gives its output.",
        measure=apart,
        bound=1e-10,
        breaks=pre_norm,
        against="pre-norm",
    )
]
