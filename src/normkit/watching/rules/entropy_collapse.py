"""Heads that look at one key alone, by scores that nothing holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from normkit.columns import number_of
from normkit.watching.certainty import Needs
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.store import Sign
from normkit.watching.trials import Trial, reading

ENTROPY = 0.05  # of the largest possible: about one key in effect, whatever the length
LOGIT = 50.0
"""A head may well look at one key; at scores beyond 50 no other can be seen again: e^-50 is below float32's resolution
of 1, and gradients are exactly zero. Entropy collapse goes with diverging training (arXiv 2303.06296)."""
SIGN = Sign("logit", LOGIT)

PAIRS = (("query", "key"), ("q_proj", "k_proj"), ("qkv",), ("c_attn",), ("to_q", "to_k"), ("wq", "wk"))
NEEDS = Needs("attention collapses", ("entropy",), asked=lambda history: bool(history.facts.get("attends")))
TRIAL = Trial(
    what=lambda history, finding: f"the least entropy of a head of {finding.where[0]}",
    read=lambda history, finding: reading(history, finding.where[0], "entropy"),
    ill=lambda entropy: -entropy,
    shows=lambda entropy: entropy < ENTROPY,
)


def find(history: History) -> Iterator[Finding]:
    """Look for both at once."""
    entropy, logit = history.late("entropy"), history.late("logit")
    ill = [name for name in entropy if entropy[name] < ENTROPY and logit[name] > LOGIT]
    order = sorted(ill, key=lambda name: -logit[name])
    if not order:
        return
    name = order[0]
    head = int(history.series(name, "entropy_head")[-1])
    yield Finding(
        "attention has collapsed",
        4.5,
        tuple(order),
        f"head {head} of {name}: entropy {number(entropy[name])} of the largest possible, and scores up to "
        f"{number(logit[name])}; this holds for {len(order)} of {number_of(len(entropy), 'layer')}.",
        since=history.since(name, SIGN),
        leads="no gradient through the scores, and spikes of the loss",
        otherwise=f"an entropy above {ENTROPY:g}, or scores below {LOGIT:g}",
        margin=min(ENTROPY / max(entropy[name], 1e-9), logit[name] / LOGIT),
        remedies=remedies(history),
    )


def remedies(history: History) -> tuple[Remedy, ...]:
    """Return what holds scores, by the names of what makes queries and keys in this model."""
    lines = [
        f'nk.weight.apply(model, "sigma-reparam", where="{pattern}", gamma_init=1.0)'
        for pattern in patterns(history.facts["shapes"])
    ]
    norms = []
    names = [pattern.strip("*") for pattern in patterns(history.facts["shapes"])]
    if len(names) == 2:
        which = f"n.endswith({tuple(names)!r})"
        line = "[model.set_submodule(n, nn.Sequential(m, nk.RMSNorm(m.out_features)))"
        norms = [Remedy("qk-norm", f"{line} for n, m in list(model.named_modules()) if {which}]")]
    clip = "clip = nk.ScoreClip(model) before the training, and clip() after each optimizer.step()"
    own = "nk.qk_clip(query.weight, key.weight, largest, heads=heads) after each step, with the largest score a head"
    clipped = Remedy("qk-clip", clip if history.facts.get("clips") else own, runs=False)
    return (*norms, Remedy("sigma-reparam", "; ".join(lines)), clipped)


def patterns(names: Iterable[str]) -> list[str]:
    """Return patterns that match what makes queries and keys in a model, as it calls them.

    >>> patterns(["0.q_proj.weight", "0.k_proj.weight", "0.v_proj.weight"]), patterns(["h.0.attn.qkv.weight"])
    (['*q_proj*', '*k_proj*'], ['*qkv*'])
    """
    layers = {name.rpartition(".")[0].rpartition(".")[2] for name in names}
    return next(
        (
            [f"*{part}*" for part in parts]
            for parts in PAIRS
            if all(any(part in one for one in layers) for part in parts)
        ),
        ["*query*", "*key*"],
    )
