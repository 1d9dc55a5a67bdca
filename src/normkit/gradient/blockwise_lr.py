"""Blockwise learning rates: AdamW with a rate for each kind of block of a Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import MOMENTS, Groups, Optimizer, adam, settings

MULTIPLIERS = MappingProxyType({"norm": 1.0, "vo": 4.0, "ffn": 6.0, "qk": 8.0, "embed": 10.0, "other": 1.0})
# what the names of a family's parameters hold, and the block that it is a sign of; the first that fits counts
SCHEMES = {
    "llama": (
        ("embed", "embed"),
        ("lm_head", "embed"),
        ("norm", "norm"),
        ("q_proj", "qk"),
        ("k_proj", "qk"),
        ("v_proj", "vo"),
        ("o_proj", "vo"),
        ("mlp", "ffn"),
    ),
    "gpt": (
        ("wte", "embed"),
        ("wpe", "embed"),
        ("lm_head", "embed"),
        ("ln", "norm"),
        ("attn.q_attn", "qk"),
        ("attn.k_attn", "qk"),
        ("attn.v_attn", "vo"),
        ("attn.c_attn", "vo"),
        ("attn.c_proj", "vo"),
        ("mlp", "ffn"),
    ),
}


@method(
    "blockwise-lr",
    paper="The Sharpness Disparity Principle in Transformers for Accelerating Language Model Pre-Training "
    "(Wang et al., 2025), arXiv 2502.19002",
    shape="...",
    replaces=("adamw",),
)
class BlockwiseLR(Optimizer):
    """Take AdamW's step, at a multiple of the learning rate that the kind of block sets.

    For pretraining a transformer with AdamW, where the sharpest blocks, the norms, set a learning rate that is too
    small for all others. It is about blocks of one model; to carry a rate from one width to another take
    ``wd-scaling``.

    A Transformer's norms are sharp and its embeddings flat, all through training; what is flat bears a larger rate. A
    group says its ``block``, and its rate is ``lr`` times

        norm 1, vo 4, ffn 6, qk 8, embed 10, other 1

    Decay is in step with it. A schedule of ``lr`` keeps its shape. :func:`blockwise_groups` reads the blocks off a
    model's names, ``normkit.param_groups(model, "blockwise-lr")`` off its modules.

    Args:
        params: parameters, which are ``other``, or groups of them with a ``block``.
        lr: the learning rate of norms.
        betas: shares of the old value in the moments.
        eps: added to the root of the second moment.
        weight_decay: the share of a weight that is taken off a step, times the rate of its block.
        multipliers: other multiples for some blocks.
        maximize: go up instead of down.
        foreach: work on the parameters of a group together; None: not on CPU.

    State of a parameter: ``step``, ``exp_avg``, ``exp_avg_sq``.

    The Sharpness Disparity Principle (Wang et al., 2025), arXiv 2502.19002.
    """

    state_names = MOMENTS

    def __init__(
        self,
        params: Groups,
        lr: float = 6e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        multipliers: Mapping[str, float] | None = None,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        options = settings(locals())
        if not isinstance(options.pop("multipliers"), Mapping | None):
            raise TypeError(f"BlockwiseLR: multipliers must map blocks to numbers, not {multipliers!r}")
        self.multipliers = {**MULTIPLIERS, **(multipliers or {})}
        for block, value in self.multipliers.items():
            check.choice(self, "multipliers", block, tuple(MULTIPLIERS))
            self.multipliers[block] = check.number(self, f"multipliers[{block!r}]", value, 0.0)
        super().__init__(**options, block="other")

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "multipliers": self.multipliers}

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.choice(self, "block", group["block"], tuple(MULTIPLIERS))

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        settings = {name: group[name] for name in ("betas", "eps", "weight_decay")}
        adam(params, grads, states, lr=group["lr"] * self.multipliers[group["block"]], **settings)


def blockwise_groups(model: nn.Module, scheme: str = "auto") -> list[dict[str, Any]]:
    """Return a group for each block of a Transformer, read off the names of its parameters as the authors do.

    A fused projection of queries, keys and values is ``vo``, the smaller multiple. ``scheme`` is ``"llama"``,
    ``"gpt"`` or ``"auto"``, which takes GPT's where some name holds ``wte`` or ``attn.c_``.

    >>> layer = nn.ModuleDict({"q_proj": nn.Linear(4, 4, bias=False), "norm": nn.LayerNorm(4)})
    >>> [(group["block"], len(group["params"])) for group in blockwise_groups(layer)]
    [('qk', 1), ('norm', 2)]
    """
    check.choice("blockwise_groups", "scheme", scheme, ("auto", *SCHEMES))
    names = dict(model.named_parameters())
    if scheme == "auto":
        scheme = "gpt" if any("wte" in name or "attn.c_" in name for name in names) else "llama"
    groups: dict[str, list[Tensor]] = {}
    for name, p in names.items():
        block = next((block for sign, block in SCHEMES[scheme] if sign in name), "other")
        groups.setdefault(block, []).append(p)
    return [{"params": params, "block": block} for block, params in groups.items()]
